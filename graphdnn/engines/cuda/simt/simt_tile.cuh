// Operand tiles of a GEMM on CUDA cores: stores to shared memory, and the multiply-adds of a thread.
//
//   tile_a[k][row], tile_b[k][column]    TILE_K rows of TILE_M (TILE_N) elements and PAD

#include "simt_tile_coord.cuh"

// How the threads of a CTA divide one operand tile: vectors of V elements, contiguous along k or along the outer index.
template <int OUTER, int V, bool K_MAJOR> struct Chunks {
    static constexpr int VECS_K = K_MAJOR ? TILE_K / V : TILE_K, VECS_OUTER = K_MAJOR ? OUTER : OUTER / V;
    static constexpr int ALL = VECS_K * VECS_OUTER, COUNT = (ALL + THREADS - 1) / THREADS;
    // Consecutive threads read consecutive vectors.
    static __device__ __forceinline__ int k(int chunk) {
        return K_MAJOR ? chunk % VECS_K * V : chunk / VECS_OUTER;
    }
    static __device__ __forceinline__ int outer(int chunk) {
        return K_MAJOR ? chunk / VECS_K : chunk % VECS_OUTER * V;
    }
};

template <class C, int V, int PITCH, bool K_MAJOR>
__device__ __forceinline__ void store_shared(Staged* tile, const Staged (&from)[C::COUNT][V]) {
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        const int chunk = i * THREADS + (int)threadIdx.x;
        if (C::ALL % THREADS != 0 && chunk >= C::ALL) continue;
        const int k = C::k(chunk), outer = C::outer(chunk);
        #pragma unroll
        for (int e = 0; e < V; ++e) tile[(K_MAJOR ? k + e : k) * PITCH + (K_MAJOR ? outer : outer + e)] = from[i][e];
    }
}

__device__ __forceinline__ void fma_tile(
    const Staged* tile_a, const Staged* tile_b, const ThreadCoord& thread, Accum (&accum)[TM][TN]
) {
    #pragma unroll
    for (int k = 0; k < TILE_K; ++k) {
        Staged a[TM], b[TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) a[i] = tile_a[k * PITCH_A + row_of(thread, i)];
        #pragma unroll
        for (int j = 0; j < TN; ++j) b[j] = tile_b[k * PITCH_B + column_of(thread, j)];
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j) multiply_add(accum[i][j], a[i], b[j]);
    }
}
