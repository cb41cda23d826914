// direct_wgrad_sum computes the split reduction of a filter gradient: it adds the partial sums of the first launch's CTAs in
// their order and applies the epilogue. It may start early: CTAs of the first launch trigger it before they store partial sums.
//
// Tile:    32 channels of one tap for a CTA; blockIdx.y is the tap (r, s, c).
// Memory:  partial sums are [split][tap][channel], with channels padded to p.padded_channels.
//
// Required constants (from the generator): R, S, FLIP: the filter. GROUP_IN, GROUP_OUT: channels of a group.
//   REDUCE_WARPS: warps of a CTA, which divide the splits.

#include "pdl.cuh"

// The lanes of a warp are channels. The warps of a CTA divide the splits of one tap: each adds every REDUCE_WARPS-th split.
extern "C" __global__ void __launch_bounds__(32 * REDUCE_WARPS) direct_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ Accum shared[REDUCE_WARPS][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int o = (int)blockIdx.x * 32 + lane, tap = (int)blockIdx.y;  // tap: (r, s, c)
    const bool is_channel = o < (int)p.channels_out;
    pdl_trigger();
    pdl_wait();
    Accum accum = (Accum)0;
    if (is_channel) {
        const Accum* source = p.partial + (long long)tap * p.padded_channels + o;
        const long long split_stride = (long long)(R * S * GROUP_IN) * p.padded_channels;
        #pragma unroll 8
        for (int i = slice; i < (int)p.splits; i += REDUCE_WARPS) accum = wrapping_sum(accum, source[i * split_stride]);
    }
    shared[slice][lane] = accum;
    __syncthreads();
    if (slice != 0 || !is_channel) return;
    #pragma unroll
    for (int i = 1; i < REDUCE_WARPS; ++i) accum = wrapping_sum(accum, shared[i][lane]);
    const int c = tap % GROUP_IN, s = tap / GROUP_IN % S, r = tap / (GROUP_IN * S);
    const int coord[6] = {o / GROUP_OUT, o % GROUP_OUT, c, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
    const Accum acc[1] = {accum};
    epilogue(p, coord, acc);
}
