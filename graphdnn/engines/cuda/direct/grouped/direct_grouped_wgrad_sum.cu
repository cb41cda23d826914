// direct_grouped_wgrad_sum computes the split reduction of the filter gradient of groups of 8 to 64 channels: it adds the partial
// sums of the first launch in order and applies the epilogue.
//
// Tile:    32 * 4 filter elements for a CTA.
// Memory:  partial sums are [split][output channel][tap][input channel of the group].
//
// Required constants: those of direct_grouped_wgrad_tile.cuh; REDUCE_WARPS: warps of a CTA, which divide the splits.

#include "pdl.cuh"
#include "direct_grouped_wgrad_tile.cuh"

// A thread owns four filter elements. The warps of a CTA divide the splits: each adds every REDUCE_WARPS-th split, in order.
extern "C" __global__ void __launch_bounds__(32 * REDUCE_WARPS) direct_grouped_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ Vec<float, 4> shared[REDUCE_WARPS][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int element = ((int)blockIdx.x * 32 + lane) * 4, elements = (int)p.channels * WINDOW;
    pdl_trigger();
    pdl_wait();
    Vec<float, 4> accum{};
    if (element < elements) {
        const float* source = p.partial + slice * (long long)elements + element;
        #pragma unroll 4
        for (int split = slice; split < (int)p.splits; split += REDUCE_WARPS, source += REDUCE_WARPS * (long long)elements) {
            const Vec<float, 4> partial = load_vec<4>(source);
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum.data[e] += partial.data[e];
        }
    }
    if constexpr (REDUCE_WARPS > 1) {
        shared[slice][lane] = accum;
        __syncthreads();
        if (slice != 0) return;
        #pragma unroll
        for (int other = 1; other < REDUCE_WARPS; ++other)
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum.data[e] += shared[other][lane].data[e];
    }
    if (element >= elements) return;
    const int k = element / WINDOW, rem = element - k * WINDOW, tap = rem / GROUP_IN, c = rem - tap * GROUP_IN, r = tap / S, s = tap - r * S;
    #pragma unroll
    for (int e = 0; e < 4; e += VEC_WIDTH) {
        const int coord[6] = {k / GROUP_OUT, k % GROUP_OUT, c + e, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
        float acc[VEC_WIDTH];
        #pragma unroll
        for (int i = 0; i < VEC_WIDTH; ++i) acc[i] = accum.data[e + i];
        epilogue(p, coord, acc);
    }
}
