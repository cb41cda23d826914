// A block's part of a filter gradient, the plain way: from pixels that are there only. Kernels multiply zeros in place of
// those that are not, but 0 times infinity is not 0; a block that finds NaN among its sums computes them again.

// A turn of an item is ROWS steps. `channel` of dy, `channel_in` of x.
template <int ROWS>
__device__ __forceinline__ Accum exact_sum(const Params& p, int channel, int channel_in, int r, int s) {
    Accum sum = (Accum)0;
    #pragma unroll 1
    for (unsigned int index = blockIdx.y; index < (unsigned int)p.items; index += gridDim.y) {
        const Item<ROWS> item(p, index);
        const int left = item.column_block * TILES * TW;
        const int right = left + TILES * TW < item.out_w ? left + TILES * TW : item.out_w;
        #pragma unroll 1
        for (int row = item.first; row < item.last; ++row) {
            const int h = row * STRIDE_H + item.down.shift + r;
            if ((unsigned int)h >= (unsigned int)item.in_h) continue;
            #pragma unroll 1
            for (int column = left; column < right; ++column) {
                const int w = column * STRIDE_W + item.across.shift + s;
                if ((unsigned int)w >= (unsigned int)item.in_w) continue;
                const Gathered x = p.gathered
                    [item.n * p.gathered_n + (h * DILATION_H + item.down.met) * p.gathered_h +
                     (w * DILATION_W + item.across.met) * p.gathered_w + channel_in];
                const Plain dy = p.plain
                    [item.n * p.plain_n + (row * DILATION_H + item.down.own) * p.plain_h +
                     (column * DILATION_W + item.across.own) * p.plain_w + channel];
                multiply_add(sum, widen<Accum>(x), widen<Accum>(dy));
            }
        }
    }
    return sum;
}

// All of a block's sums once more, for CHANNELS channels of dy.
template <int ROWS, int CHANNELS> __device__ __noinline__ void add_exactly(const Params& p, int channel_block) {
    #pragma unroll 1
    for (int i = threadIdx.x; i < R * S * GROUP_IN * CHANNELS; i += THREADS) {
        const int o = channel_block * CHANNELS + i % CHANNELS, tap = i / CHANNELS;  // tap: (r, s, c)
        if (o >= (int)p.channels_out) continue;
        const int c = o / GROUP_OUT * GROUP_IN + tap % GROUP_IN, s = tap / GROUP_IN % S, r = tap / (GROUP_IN * S);
        p.partial[((long long)blockIdx.y * (R * S * GROUP_IN) + tap) * p.padded_channels + o] = exact_sum<ROWS>(p, o, c, r, s);
    }
}
