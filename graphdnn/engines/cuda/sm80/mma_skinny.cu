// Skinny GEMM by mma.sync: c[skinny, large] = sum over k of skinny[., k] * large[., k]; both operands are K-major.
//
// Tile:     16 * MMA_TILES_M rows of the large operand and all SKINNY_EXTENT rows of the skinny one for a CTA. The warps split k,
//           WARP_K elements at a time, and their accumulators are added through shared memory in the order of the warps.
// Loads:    the large operand is read once, from global memory straight to registers. Lane 4 * g + j reads 16 bytes of rows g
//           and g + 8, at k = 8 j. The mma instruction expects another order of k, but the order is the same for both operands.
// Epilogue: generated, one element of a thread at a time.
//
// Required constants (from the generator):
//   SKINNY_EXTENT: rows of the skinny operand, up to 16; SKINNY_IS_A: whether it has the rows of c; MMA_TILES_M: 1 or 2.
//   LOADS_IN_FLIGHT: loads of WARP_K elements in flight; THREADS, CTAS_PER_SM: launch bounds; RANK: axes of c.

#include "pdl.cuh"
#include "predicated_load.cuh"
#include "mma.cuh"

constexpr int WARPS = THREADS / 32;
constexpr int WARP_K = 64;  // k elements of one load of a warp
constexpr int TILE_M = 16 * MMA_TILES_M, MMA_TILES_N = (SKINNY_EXTENT + 7) / 8;
constexpr int PITCH = TILE_M + 4;

// Load eight elements, or zeros. The large operand is read once, so its loads do not allocate in L1.
__device__ __forceinline__ uint4 load_no_allocate(const Element* from, bool inside) {
    uint4 w = {0u, 0u, 0u, 0u};
#ifdef __CUDA_ARCH__
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; "
                 "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w) : "l"(from), "r"((int)inside));
#else
    if (inside) w = *(const uint4*)from;
#endif
    return w;
}
__device__ __forceinline__ uint4 load_cached(const Element* from, bool inside) {
    Vec<Element, 8> vec;
    load_if<8>(inside, from, vec.data);
    return *(const uint4*)&vec;
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) mma_skinny(const __grid_constant__ Params p) {
    __shared__ float partial[WARPS][8 * MMA_TILES_N][PITCH];
    pdl_trigger();
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4, warp = (int)threadIdx.x / 32;
    const long long first = (long long)blockIdx.x * TILE_M;
    const int depth = (int)p.depth;
    const Element *large[2 * MMA_TILES_M], *skinny[MMA_TILES_N];
    #pragma unroll
    for (int i = 0; i < 2 * MMA_TILES_M; ++i) {
        const long long large_row = first + 8 * i + g;  // rows past the end repeat the last row
        large[i] = p.large + (large_row < p.large_extent ? large_row : p.large_extent - 1) * p.large_pitch + 8 * j;
    }
    #pragma unroll
    for (int c = 0; c < MMA_TILES_N; ++c) skinny[c] = p.skinny + (8 * c + g < SKINNY_EXTENT ? 8 * c + g : 0) * p.skinny_pitch + 8 * j;
    float accum[MMA_TILES_M][MMA_TILES_N][4];
    #pragma unroll
    for (int m = 0; m < MMA_TILES_M; ++m)
        #pragma unroll
        for (int c = 0; c < MMA_TILES_N; ++c)
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum[m][c][e] = 0.0f;

    pdl_wait();
    #pragma unroll 1
    for (int k0 = warp * WARP_K; k0 < depth; k0 += WARPS * WARP_K * LOADS_IN_FLIGHT) {
        uint4 a[LOADS_IN_FLIGHT][2][2 * MMA_TILES_M], b[LOADS_IN_FLIGHT][2][MMA_TILES_N];
        #pragma unroll
        for (int t = 0; t < LOADS_IN_FLIGHT; ++t)
            #pragma unroll
            for (int i = 0; i < 2 * MMA_TILES_M; ++i)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int k = k0 + t * (WARPS * WARP_K) + half * 32;
                    a[t][half][i] = load_no_allocate(large[i] + k, k + 8 * j < depth);
                }
        #pragma unroll
        for (int t = 0; t < LOADS_IN_FLIGHT; ++t)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                #pragma unroll
                for (int c = 0; c < MMA_TILES_N; ++c) {
                    const int k = k0 + t * (WARPS * WARP_K) + half * 32;
                    b[t][half][c] = load_cached(skinny[c] + k, k + 8 * j < depth && 8 * c + g < SKINNY_EXTENT);
                }
        #pragma unroll
        for (int t = 0; t < LOADS_IN_FLIGHT; ++t)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                #pragma unroll
                for (int c = 0; c < MMA_TILES_N; ++c)
                    #pragma unroll
                    for (int m = 0; m < MMA_TILES_M; ++m) {
                        const uint4 low = a[t][half][2 * m], high = a[t][half][2 * m + 1], x = b[t][half][c];
                        const unsigned int one[4] = {low.x, high.x, low.y, high.y}, two[4] = {low.z, high.z, low.w, high.w};
                        multiply_warp<Element, Element, float>(accum[m][c], one, x.x, x.y);
                        multiply_warp<Element, Element, float>(accum[m][c], two, x.z, x.w);
                    }
    }

    #pragma unroll
    for (int m = 0; m < MMA_TILES_M; ++m)
        #pragma unroll
        for (int c = 0; c < MMA_TILES_N; ++c)
            #pragma unroll
            for (int e = 0; e < 4; ++e) partial[warp][8 * c + 2 * j + e % 2][16 * m + e / 2 * 8 + g] = accum[m][c][e];
    __syncthreads();
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < TILE_M * SKINNY_EXTENT; i += THREADS) {
        const int skinny_row = i / TILE_M, large_row = i % TILE_M;
        if (first + large_row >= p.large_extent) continue;
        float acc[1] = {0.0f};
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) acc[0] += partial[w][skinny_row][large_row];
        int at[RANK] = {};
        at[RANK - 2] = SKINNY_IS_A ? skinny_row : (int)first + large_row;
        at[RANK - 1] = SKINNY_IS_A ? (int)first + large_row : skinny_row;
        epilogue(p, at, acc);
    }
}
