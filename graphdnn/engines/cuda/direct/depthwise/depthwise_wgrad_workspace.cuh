// Split reduction of a depthwise filter gradient through the workspace: a second launch adds the splits (direct_wgrad_sum.cu).

#define SPLIT_CLUSTER

__device__ __forceinline__ int split_index(const Params&) { return (int)blockIdx.y; }
__device__ __forceinline__ int channel_block_index(const Params&) { return (int)blockIdx.x; }
__device__ __forceinline__ void arrive_splits() {}

// `shared` is [tile][tap][channel].
__device__ __forceinline__ void store_split(const Params& p, const Accum* shared, int split, int channel_block) {
    constexpr int CHANNELS = CHANNEL_THREADS * V, COUNT = R * S * CHANNELS;
    #pragma unroll 1
    for (int i = threadIdx.x; i < COUNT; i += THREADS) {
        Accum total = shared[i];
        #pragma unroll
        for (int j = 1; j < TILES; ++j) total = wrapping_sum(total, shared[j * COUNT + i]);
        const long long tap = (long long)split * (R * S) + i / CHANNELS;
        p.partial[tap * p.padded_channels + channel_block * CHANNELS + i % CHANNELS] = total;
    }
}
