// Parts of a split product go to memory, and a launch of its own adds them (split_k_reduce.cu).

#define SPLIT_K_CLUSTER
__device__ __forceinline__ int split_k_item(const Params&, int number) { return number; }
__device__ __forceinline__ void cluster_arrive_relaxed() {}

__device__ __forceinline__ void reduce_splits(
    const Params& p, const WorkTile& w, int number, int consumer, unsigned char*, const Accum (&sum)[MMA_TILES_M][ACCUMS]
) {
    const int part = number / (int)p.tiles;
    #pragma unroll
    for (int j = 0; j < MMA_TILES_M; ++j)
        #pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; ++block)
            store_partials(p, part, fragment_index(w.tile, consumer, j, block), column_block(sum[j], block).at);
}
