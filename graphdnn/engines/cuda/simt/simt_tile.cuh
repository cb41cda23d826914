// A block's tile of a matrix product: how its operands come into shared memory, and what each thread computes of it.
//
//   tile_a[k][row], tile_b[k][column]    BK rows of BM (BN) elements and PAD

// A thread's part of one operand tile: chunks of V elements, along k or along the outer index.
template <int OUTER, int V, bool ALONG_K> struct Chunks {
    static constexpr int PER_K = ALONG_K ? BK / V : BK, PER_OUTER = ALONG_K ? OUTER : OUTER / V;
    static constexpr int ALL = PER_K * PER_OUTER, COUNT = (ALL + THREADS - 1) / THREADS;
    // Neighbouring threads read neighbouring memory: along k first, or along the outer index first.
    static __device__ __forceinline__ int k(int chunk) {
        return ALONG_K ? chunk % PER_K * V : chunk / PER_OUTER;
    }
    static __device__ __forceinline__ int outer(int chunk) {
        return ALONG_K ? chunk / PER_K : chunk % PER_OUTER * V;
    }
};

template <class C, int V, int PITCH, bool ALONG_K>
__device__ __forceinline__ void put(Staged* tile, const Staged (&from)[C::COUNT][V]) {
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        const int chunk = i * THREADS + (int)threadIdx.x;
        if (C::ALL % THREADS != 0 && chunk >= C::ALL) continue;
        const int k = C::k(chunk), outer = C::outer(chunk);
        #pragma unroll
        for (int e = 0; e < V; ++e) tile[(ALONG_K ? k + e : k) * PITCH + (ALONG_K ? outer : outer + e)] = from[i][e];
    }
}

__device__ __forceinline__ void multiply(
    const Staged* tile_a, const Staged* tile_b, const Place& mine, Accum (&sum)[TM][TN]
) {
    #pragma unroll
    for (int k = 0; k < BK; ++k) {
        Staged a[TM], b[TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) a[i] = tile_a[k * PITCH_A + row_of(mine, i)];
        #pragma unroll
        for (int j = 0; j < TN; ++j) b[j] = tile_b[k * PITCH_B + column_of(mine, j)];
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j) multiply_add(sum[i][j], a[i], b[j]);
    }
}
