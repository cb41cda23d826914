// Channel planes that do not fit into shared memory, in three launches.
//
//   channel_planes_partials: each CTA sums its own segments and stores partial sums in the workspace.
//   channel_planes_combine:  one CTA for each row combines the partial sums, in the order of the CTAs.
//   channel_planes_apply:    reads x again and writes the result. CTAs run in reverse order, because L2 may still hold the
//                            segments that the first launch read last.
//
// Tile:    CHANNELS adjacent rows and 1 / p.parts of their segments for a CTA; blockIdx.y counts images of group norms.
// Memory:  partial sums are [image][CTA][channel], two values each.
// Threads: as in norm_channel_planes.cu.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, 256 or 512; BLOCKS: CTAs that must fit on an SM.
//   CHANNELS: rows of a CTA; VEC_WIDTH: elements of a vector, 1 to 8; RANK: axes of the index space.
//   ROW_RANK: axes that count rows: 1 for channels, 3 for groups, which are (image, group, element of a group).
//   PASSED_ELEMENTS: elements of a vector whose sums pass through shared memory at a time, 1 to VEC_WIDTH.
//   CENTERED: 1 if a mean is subtracted; always 1 here.

#include "pdl.cuh"
#include "channel_planes.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) channel_planes_partials(const __grid_constant__ Params p) {
    __shared__ Compute row_sums[2][CHANNELS];
    pdl_trigger();
    const Segments segments = locate_segments(p, (int)blockIdx.x);
    pdl_wait();
    int rows[VEC_WIDTH];
    Row row;
    compute_sums(p, segments, rows, evict_normal_policy(), row, row_sums);
    if constexpr (SCALES_VARY) store_element_sums(p, segments);
    for (int i = (int)threadIdx.x; i < segments.channels; i += THREADS) {
        const long long place = ((long long)blockIdx.y * p.parts + segments.slice) * p.channels + segments.first_channel + i;
        p.partial[place] = {row_sums[0][i], row_sums[1][i]};
    }
}

__device__ __forceinline__ Compute reduce_cta(Compute value) {
    __shared__ Compute shared[WARPS];
    #pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    #pragma unroll
    for (int i = 1; i < WARPS; ++i) value += shared[i];
    __syncthreads();
    return value;
}

// One CTA for each row of an image combines the partial sums: plain sums, or a sum and the squared deviations from the mean.
extern "C" __global__ void __launch_bounds__(THREADS, 1) channel_planes_combine(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const int row = (int)blockIdx.x, parts = (int)p.parts;
    const Vec<Compute, 2>* const part = p.partial + (long long)blockIdx.y * parts * p.channels + row;
    Compute first = (Compute)0, second = (Compute)0;
    for (int i = (int)threadIdx.x; i < parts; i += THREADS) first += part[i * p.channels].data[0];
    first = reduce_cta(first);
    for (int i = (int)threadIdx.x; i < parts; i += THREADS) {
        const Vec<Compute, 2> sums = part[i * p.channels];
        second += centered_sum(p, i, sums.data[0], sums.data[1], first);
    }
    second = reduce_cta(second);
    if (threadIdx.x != 0) return;
    p.combined[(long long)blockIdx.y * p.channels + row] = factors_of(p, first, second);
    if constexpr (!SCALES_VARY) {
        int at[ROW_RANK] = {};
        if constexpr (ROW_RANK == 3) at[0] = (int)blockIdx.y, at[1] = row;
        else at[0] = row;
        store_row(p, at, first, second);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) channel_planes_apply(const __grid_constant__ Params p) {
    pdl_trigger();
    Segments segments = locate_segments(p, (int)gridDim.x - 1 - (int)blockIdx.x);
    int rows[VEC_WIDTH];
    locate_rows(segments, rows);
    pdl_wait();
    Row row;
    load_factors(p, segments, rows, row);
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        const Vec<Compute, 2> combined = p.combined[(long long)blockIdx.y * p.channels + segments.first_channel + rows[e]];
        set_row_factors(combined.data[0], combined.data[1], row, e);
    }
    for_each_loaded(p, segments, evict_first_policy(), [&](int n, const Stored& vec) {
        int at[RANK];
        segments.locate_segment(n, at);
        epilogue(p, at, widened(vec), row);
    });
}
