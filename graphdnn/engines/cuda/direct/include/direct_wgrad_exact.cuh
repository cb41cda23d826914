// Recomputation of a CTA's partial filter gradient without padding. The main loops multiply zeros in place of pixels
// outside the image, but 0 * inf is NaN. A CTA that finds NaN among its accumulators recomputes them with this code.

#include "direct_wgrad_item.cuh"

// Sums tap (r, s) over the CTA's work items. `channel` is a channel of dy, `channel_in` a channel of x.
template <int ROWS>
__device__ __forceinline__ Accum exact_sum(const Params& p, int channel, int channel_in, int r, int s) {
    Accum accum = (Accum)0;
    #pragma unroll 1
    for (unsigned int index = blockIdx.y; index < (unsigned int)p.items; index += gridDim.y) {
        const WorkItem<ROWS> item(p, index);
        const int left = item.column_block * TILES * TW;
        const int right = left + TILES * TW < item.out_w ? left + TILES * TW : item.out_w;
        #pragma unroll 1
        for (int row = item.first; row < item.last; ++row) {
            const int h = row * STRIDE_H + item.phase_h.shift + r;
            if ((unsigned int)h >= (unsigned int)item.in_h) continue;
            #pragma unroll 1
            for (int column = left; column < right; ++column) {
                const int w = column * STRIDE_W + item.phase_w.shift + s;
                if ((unsigned int)w >= (unsigned int)item.in_w) continue;
                const ImageElement x = p.image
                    [item.n * p.image_n + (h * DILATION_H + item.phase_h.image_phase) * p.image_h +
                     (w * DILATION_W + item.phase_w.image_phase) * p.image_w + channel_in];
                const DyElement dy = p.dy
                    [item.n * p.dy_n + (row * DILATION_H + item.phase_h.out_phase) * p.dy_h +
                     (column * DILATION_W + item.phase_w.out_phase) * p.dy_w + channel];
                multiply_add(accum, widen<Accum>(x), widen<Accum>(dy));
            }
        }
    }
    return accum;
}

// Recomputes all partial sums of a CTA, which owns CHANNELS channels of dy.
template <int ROWS, int CHANNELS> __device__ __noinline__ void recompute_exact(const Params& p, int channel_block) {
    #pragma unroll 1
    for (int i = threadIdx.x; i < R * S * GROUP_IN * CHANNELS; i += THREADS) {
        const int o = channel_block * CHANNELS + i % CHANNELS, tap = i / CHANNELS;  // tap: (r, s, c)
        if (o >= (int)p.channels_out) continue;
        const int c = o / GROUP_OUT * GROUP_IN + tap % GROUP_IN, s = tap / GROUP_IN % S, r = tap / (GROUP_IN * S);
        p.partial[((long long)blockIdx.y * (R * S * GROUP_IN) + tap) * p.padded_channels + o] = exact_sum<ROWS>(p, o, c, r, s);
    }
}
