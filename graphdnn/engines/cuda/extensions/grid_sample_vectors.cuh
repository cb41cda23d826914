// The sums of a row of pixels if channels are contiguous: SLOTS lanes share a pixel, each with a vector of its channels, so
// that their accesses are adjacent. AT_ONCE adjacent pixels are served at a time.

#include "grid_sample_listing.cuh"

constexpr int SLOTS = CHANNELS / VEC_WIDTH, AT_ONCE = 32 / SLOTS, BATCH = 4;

struct Sums {
    Compute sum[SLOTS][VEC_WIDTH] = {};

    // `own` has a bit for each position, from `base` of the list on, that overlaps this lane's pixel.
    __device__ __forceinline__ void add(const Params& p, const Listing& list, const Part& part, int base, unsigned int own) {
        if (!__any_sync(~0u, own != 0)) return;
        // Beyond the last vector, the last one again
        const int slot = part.lane % SLOTS, vec = slot < part.last ? slot : part.last;
        const Index image = part.image + vec * VEC_WIDTH * (Index)p.dy_stride[1];
        #pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            const int pixel = s * AT_ONCE + part.lane / SLOTS;
            unsigned int left = __shfl_sync(~0u, own, pixel);
            while (left) {
                Vec<Element, VEC_WIDTH> some[BATCH];
                Compute weight[BATCH];
                bool is_one[BATCH];
                int k = 0;
                #pragma unroll
                for (int j = 0; j < BATCH; ++j) {  // beyond the last position, the last one again
                    is_one[j] = left != 0;
                    k = is_one[j] ? base + __ffs((int)left) - 1 : k;
                    left &= left - 1;
                    weight[j] = list.weight(k, part.left + pixel, part.row);
                    some[j] = load_vec_read_only<VEC_WIDTH>(p.dy + image + list.offsets[k]);
                }
                #pragma unroll
                for (int j = 0; j < BATCH; ++j)
                    if (is_one[j])
                        #pragma unroll
                        for (int e = 0; e < VEC_WIDTH; ++e) sum[s][e] += widen<Compute>(some[j].data[e]) * weight[j];
            }
        }
    }

    __device__ __forceinline__ void give(const Params& p, const Part& part) const {
        const int slot = part.lane % SLOTS;
        if (slot > part.last) return;
        #pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            const int w = part.left + s * AT_ONCE + part.lane / SLOTS;
            if (w < (int)p.width) store(p, part.target + w * (Index)p.dx_stride[3] + slot * VEC_WIDTH * (Index)p.dx_stride[1], sum[s]);
        }
    }
};
