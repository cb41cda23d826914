// The end of filter gradients whose threads have V channels' sums for all taps: those of a block's tiles are one part.

constexpr int CHANNELS_OUT = LANES * V;  // of a block

// A row of taps at a time, through shared memory. `mine`: not of a thread that did another one's work once more. Whether
// there is NaN among the sums of any thread.
__device__ __forceinline__ bool add_tiles(
    const Params& p, void* memory, bool mine, int tile, int local, int channel_block,
    const Accum (&sum)[R][S][GROUP_IN][V]
) {
    Accum* const shared = (Accum*)memory;
    constexpr int ROW = S * GROUP_IN * CHANNELS_OUT;
    bool strange = false;
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        __syncthreads();
        if (mine) {
            #pragma unroll
            for (int s = 0; s < S; ++s)
                #pragma unroll
                for (int c = 0; c < GROUP_IN; ++c)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) {
                        strange |= sum[r][s][c][v] != sum[r][s][c][v];
                        shared[tile * ROW + (s * GROUP_IN + c) * CHANNELS_OUT + local + v] = sum[r][s][c][v];
                    }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < ROW; i += THREADS) {
            Accum all = shared[i];
            #pragma unroll
            for (int j = 1; j < TILES; ++j) all = wrapping_sum(all, shared[j * ROW + i]);
            const long long tap = (long long)(blockIdx.y * R + r) * (S * GROUP_IN) + i / CHANNELS_OUT;
            p.partial[tap * p.padded_channels + channel_block * CHANNELS_OUT + i % CHANNELS_OUT] = all;
        }
    }
    return __syncthreads_or(strange);
}
