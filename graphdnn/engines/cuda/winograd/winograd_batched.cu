// winograd_batched computes the GEMMs of F(4x4, 3x3), one for each component of the transform:
// sums[component][row][column] = sum over the input channels of a[channel][row] * b[channel][column].
//
// Tile:     TILE_M x TILE_N for a CTA, TM x TN accumulators for a thread.
// Pipeline: STAGES stages of cp.async with TILE_K channels each.
// Memory:   operands are packed as CTAs read them: a[row tile][component][channel][row] and
//           b[column tile][component][channel][column], with zeros past the end. The caller decides what rows and columns are.
// Threads:  all threads load and multiply; there are no dedicated producer warps.
//
// Required constants (from the generator):
//   TILE_M, TILE_N, TILE_K: extents of the CTA tile; TM, TN: extents of a thread's tile, divisors of TILE_M and TILE_N.
//   THREADS: TILE_M * TILE_N / (TM * TN); CTAS_PER_SM: CTAs that must fit on an SM; GN: columns of a vector store.

#include "copies.cuh"
#include "simt_tile_coord.cuh"
#include "simt_tile.cuh"

constexpr int STAGES = 4;
constexpr int STAGE_A = TILE_K * TILE_M, STAGE_B = TILE_K * TILE_N;

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) winograd_batched(const __grid_constant__ Params p) {
    __shared__ __align__(16) float memory[STAGES * (STAGE_A + STAGE_B)];
    const long long tiles_per_component = p.blocks_m * p.blocks_n;
    const long long xi = blockIdx.x / tiles_per_component, rem = blockIdx.x - xi * tiles_per_component;
    const long long block_m = rem / p.blocks_n, block_n = rem - block_m * p.blocks_n;
    const float* from_a = p.a + block_m * p.a_block + xi * p.a_xi + threadIdx.x * 4;
    const float* from_b = p.b + block_n * p.b_block + xi * p.b_xi + threadIdx.x * 4;
    auto load_global = [&](int stage) {
        float* const to = memory + stage * (STAGE_A + STAGE_B) + threadIdx.x * 4;
        #pragma unroll
        for (int i = 0; i < STAGE_A / 4; i += THREADS)
            if (STAGE_A / 4 - i >= THREADS || (int)threadIdx.x < STAGE_A / 4 - i) cp_async_16(to + i * 4, from_a + i * 4);
        #pragma unroll
        for (int i = 0; i < STAGE_B / 4; i += THREADS)
            if (STAGE_B / 4 - i >= THREADS || (int)threadIdx.x < STAGE_B / 4 - i) cp_async_16(to + STAGE_A + i * 4, from_b + i * 4);
        from_a += STAGE_A;
        from_b += STAGE_B;
    };

    const ThreadCoord thread = thread_coord();
    float accum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) accum[i][j] = 0.0f;

    const int k_tiles = (int)p.padded_channels / TILE_K;
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < k_tiles) load_global(i);
        cp_async_commit();
    }
    int stage = 0;
    for (int s = 0; s < k_tiles; ++s) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < k_tiles) load_global((stage + STAGES - 1) % STAGES);
        cp_async_commit();
        const float* const at = memory + stage * (STAGE_A + STAGE_B);
        fma_tile(at, at + STAGE_A, thread, accum);
        stage = (stage + 1) % STAGES;
    }

    const long long pitch = p.blocks_n * TILE_N;
    float* const to = p.sums + ((xi * p.blocks_m + block_m) * TILE_M * pitch + block_n * TILE_N);
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; j += GN) {
            Vec<float, GN> vec;
            #pragma unroll
            for (int e = 0; e < GN; ++e) vec.data[e] = accum[i][j + e];
            store_vec<GN>(to + row_of(thread, i) * pitch + column_of(thread, j), vec);
        }
}
