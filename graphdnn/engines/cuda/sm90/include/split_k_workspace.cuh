// Split-K through memory: each split stores its partial sums, and another launch adds them (split_k_reduce.cu). split_k_cluster.cuh has
// the same functions for splits that a cluster adds.

#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "split_k_partials.cuh"
#include "split_k_tile.cuh"

#define SPLIT_K_CLUSTER
__device__ __forceinline__ int split_k_item(const Params&, int item) { return item; }
__device__ __forceinline__ void cluster_arrive_relaxed() {}

__device__ __forceinline__ void reduce_splits(
    const Params& p, const WorkTile& w, int item, int consumer, unsigned char*, const Accum (&accum)[MMA_TILES_M][ACCUMS]
) {
    const int split = item / (int)p.tiles;
    #pragma unroll
    for (int j = 0; j < MMA_TILES_M; ++j)
        #pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; ++block)
            store_partials(p, split, fragment_index(w.tile, consumer, j, block), column_block(accum[j], block).accum);
}
