// Fragments of partial sums (split_k_partials.cuh) where all tiles are split: [tile][consumer][MMA tile][column block].

#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "split_k_partials.cuh"

__device__ __forceinline__ int fragments_per_split(const Params& p) { return (int)p.tiles * (CONSUMER_WARPGROUPS * MMA_TILES_M * COLUMN_BLOCKS); }

__device__ __forceinline__ int fragment_index(int tile, int consumer, int j, int block) {
    return ((tile * CONSUMER_WARPGROUPS + consumer) * MMA_TILES_M + j) * COLUMN_BLOCKS + block;
}

__device__ __forceinline__ PartialTile partial_tile_at(const Params& p, int fragment) {
    PartialTile partial;
    partial.block = divmod_inplace(fragment, COLUMN_BLOCKS);
    partial.row = divmod_inplace(fragment, CONSUMER_WARPGROUPS * MMA_TILES_M) * 64;
    partial.w = decode_work_tile(p, fragment);
    return partial;
}
