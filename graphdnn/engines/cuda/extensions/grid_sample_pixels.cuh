// The sums of a row of pixels if channels are not contiguous: a lane has a pixel, and some channels of it.

#include "grid_sample_listing.cuh"

struct Sums {
    Compute sum[CHANNELS] = {};

    // Lanes visit the positions of their own pixels together: `own` has a bit for each position from `base` of the list on.
    __device__ __forceinline__ void add(const Params& p, const Listing& list, const Part& part, int base, unsigned int own) {
        for (; own; own &= own - 1) {
            const int k = base + __ffs((int)own) - 1;
            const Compute weight = list.weight(k, part.left + part.lane, part.row);
            const Index from = part.image + list.offsets[k];
            #pragma unroll
            // Beyond the last channel, the last one again; the registers bound the loads in flight
            for (int c = 0; c < CHANNELS; ++c)
                sum[c] += widen<Compute>(p.dy[from + (c < part.last ? c : part.last) * (Index)p.dy_stride[1]]) * weight;
        }
    }

    __device__ __forceinline__ void give(const Params& p, const Part& part) const {
        const int w = part.left + part.lane;
        if (w >= (int)p.width) return;
        const Index to = part.target + w * (Index)p.dx_stride[3];
        #pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
            const Compute one[1] = {sum[c]};
            if (c <= part.last) store(p, to + c * (Index)p.dx_stride[1], one);
        }
    }
};
