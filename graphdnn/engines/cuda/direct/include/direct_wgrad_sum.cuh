// The filter gradient's second kernel: it adds the parts that blocks of the first have left. It starts when all of these
// have nothing left but to add their own sums.

// A warp's lanes are channels, a block's warps share the parts of one tap: each adds every SLICES-th, in order.
extern "C" __global__ void __launch_bounds__(32 * SLICES) direct_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ Accum shared[SLICES][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int o = (int)blockIdx.x * 32 + lane, tap = (int)blockIdx.y;  // tap: (r, s, c)
    const bool inside = o < (int)p.channels_out;
    pdl_trigger();
    pdl_wait();
    Accum sum = (Accum)0;
    if (inside) {
        const Accum* from = p.partial + (long long)tap * p.padded_channels + o;
        const long long part = (long long)(R * S * GROUP_IN) * p.padded_channels;
        #pragma unroll 8
        for (int i = slice; i < (int)p.parts; i += SLICES) sum = wrapping_sum(sum, from[i * part]);
    }
    shared[slice][lane] = sum;
    __syncthreads();
    if (slice != 0 || !inside) return;
    #pragma unroll
    for (int i = 1; i < SLICES; ++i) sum = wrapping_sum(sum, shared[i][lane]);
    const int c = tap % GROUP_IN, s = tap / GROUP_IN % S, r = tap / (GROUP_IN * S);
    const int at[6] = {o / GROUP_OUT, o % GROUP_OUT, c, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
    const Accum acc[1] = {sum};
    epilogue(p, at, acc);
}
