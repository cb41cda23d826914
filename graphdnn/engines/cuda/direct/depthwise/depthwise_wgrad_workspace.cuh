// Parts of a depthwise filter gradient by way of memory: a second kernel adds them (direct_wgrad_sum.cuh).

#define IN_CLUSTERS

__device__ __forceinline__ int part_of_block(const Params&) { return (int)blockIdx.y; }
__device__ __forceinline__ int channels_of_block(const Params&) { return (int)blockIdx.x; }
__device__ __forceinline__ void greet_parts() {}

// The sums of the block's tiles, [tile][tap][channel].
__device__ __forceinline__ void leave_part(const Params& p, const Accum* shared, int part, int channel_block) {
    constexpr int CHANNELS = LANES * V, COUNT = R * S * CHANNELS;
    #pragma unroll 1
    for (int i = threadIdx.x; i < COUNT; i += THREADS) {
        Accum all = shared[i];
        #pragma unroll
        for (int j = 1; j < TILES; ++j) all = wrapping_sum(all, shared[j * COUNT + i]);
        const long long tap = (long long)part * (R * S) + i / CHANNELS;
        p.partial[tap * p.padded_channels + channel_block * CHANNELS + i % CHANNELS] = all;
    }
}
