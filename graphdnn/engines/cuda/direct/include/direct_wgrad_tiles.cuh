// The end of filter gradients whose threads accumulate all taps of V channels: the tiles of a CTA become one split.

constexpr int CHANNELS_OUT = CHANNEL_THREADS * V;  // channels of a CTA

// Adds the tiles of a CTA through shared memory, one row of taps at a time, and stores the partial sums. `owns_tile` is
// false for a spare thread, which repeats the work of another one. Returns whether any thread has NaN.
__device__ __forceinline__ bool reduce_tiles(
    const Params& p, void* memory, bool owns_tile, int tile, int local, int channel_block,
    const Accum (&accum)[R][S][GROUP_IN][V]
) {
    Accum* const shared = (Accum*)memory;
    constexpr int ROW = S * GROUP_IN * CHANNELS_OUT;
    bool has_nan = false;
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        __syncthreads();
        if (owns_tile) {
            #pragma unroll
            for (int s = 0; s < S; ++s)
                #pragma unroll
                for (int c = 0; c < GROUP_IN; ++c)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) {
                        has_nan |= accum[r][s][c][v] != accum[r][s][c][v];
                        shared[tile * ROW + (s * GROUP_IN + c) * CHANNELS_OUT + local + v] = accum[r][s][c][v];
                    }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < ROW; i += THREADS) {
            Accum total = shared[i];
            #pragma unroll
            for (int j = 1; j < TILES; ++j) total = wrapping_sum(total, shared[j * ROW + i]);
            const long long tap = (long long)(blockIdx.y * R + r) * (S * GROUP_IN) + i / CHANNELS_OUT;
            p.partial[tap * p.padded_channels + channel_block * CHANNELS_OUT + i % CHANNELS_OUT] = total;
        }
    }
    return __syncthreads_or(has_nan);
}
