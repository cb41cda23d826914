// Parts of a split product go to memory, and a launch of its own adds them (split_k_reduce.cu).

#define IN_CLUSTERS
__device__ __forceinline__ int piece_at(const Params&, int number) { return number; }
__device__ __forceinline__ void greet_cluster() {}

__device__ __forceinline__ void leave_parts(
    const Params& p, const Work& w, int number, int consumer, unsigned char*, const Accumulator (&sum)[MI][SUMS]
) {
    const int part = number / (int)p.tiles;
    #pragma unroll
    for (int j = 0; j < MI; ++j)
        #pragma unroll
        for (int block = 0; block < BLOCKS_OF_TILE; ++block)
            store_partial(p, part, piece_number(w.tile, consumer, j, block), block_of_sums(sum[j], block).at);
}
