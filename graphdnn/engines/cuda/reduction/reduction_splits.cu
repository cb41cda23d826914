// reduce_splits is the second launch of a reduction whose results several CTAs share: it adds their partial results.
//
// Tile:    SPLIT_RESULTS adjacent results for a CTA.
// Memory:  partial results are [split][accumulator][result]; adjacent threads read adjacent results.
// Threads: SPLIT_THREADS threads share a result. A thread adds its splits in ascending order; then the threads combine their
//          sums.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32; SPLIT_RESULTS: results of a CTA, a power of two up to 32.
//   PARTS: accumulators of a result; WARPS: THREADS / 32 (reduction.cu).

#include "pdl.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) reduce_splits(const __grid_constant__ Params p) {
    constexpr int K = SPLIT_RESULTS, SPLIT_THREADS = THREADS / K, TOGETHER = 8;
    const Count tile = (Count)blockIdx.x * K, index = tile + threadIdx.x % K;
    Compute acc[PARTS][1];
    #pragma unroll
    for (int part = 0; part < PARTS; ++part) acc[part][0] = identity();
    pdl_wait();
    if (index < (Count)p.results) {
        for (int split = threadIdx.x / K; split < (int)p.splits; split += TOGETHER * SPLIT_THREADS) {
            Compute part_of[TOGETHER][PARTS];
            #pragma unroll
            for (int u = 0; u < TOGETHER; ++u)
                #pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    part_of[u][part] = identity();
                    if (split + u * SPLIT_THREADS < (int)p.splits)
                        part_of[u][part] =
                            p.partial[((long long)(split + u * SPLIT_THREADS) * PARTS + part) * p.results + index];
                }
            #pragma unroll
            for (int u = 0; u < TOGETHER; ++u)
                #pragma unroll
                for (int part = 0; part < PARTS; ++part) acc[part][0] = combined(acc[part][0], part_of[u][part]);
        }
    }
    combine_lanes<K, 32>(acc);
    __shared__ Compute held[PARTS][WARPS][K];
    Warps<K, 1> warps{held};
    warps.put(acc);
    if (threadIdx.x < K && tile + threadIdx.x < (Count)p.results) {
        warps.total(threadIdx.x, acc);
        conclude(p, tile + threadIdx.x, acc);
    }
}
