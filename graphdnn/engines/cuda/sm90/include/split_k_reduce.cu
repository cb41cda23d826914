// Adds the partial sums of a split GEMM in a fixed order and runs the epilogue.
//
// Units:      a unit is UNIT_ROWS of the 8 rows that a warp's threads have as row `h`, by 32 columns. A CTA has UNITS_PER_CTA.
// Warp roles: SLICES warps share a unit; each adds a contiguous range of the splits. With fewer than 8 rows in a unit, the lanes of a
//             warp share its range. The first warp adds the warps' sums and runs the epilogue.
// Layout:     split_k_partials.cuh. Loads are vectors of four accumulators, LOADS_IN_FLIGHT splits at a time.
// Launches:   with OVERLAPS, CTAs start while the main kernel still runs and wait for it (pdl_wait); the next launch starts likewise.
//
// Required constants (from the generator), besides those of the main kernel, whose text this is part of:
//   SLICES              warps of a unit, a power of two up to 8
//   UNIT_ROWS           8, 4 or 2
//   UNITS_PER_CTA       units of a CTA
//   LOADS_IN_FLIGHT     splits whose loads a thread issues before it adds
//   OVERLAPS            the launch shares multiprocessors with the main kernel and with the next launch

#include "pdl.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "split_k_partials.cuh"

constexpr int UNIT_THREADS = 32 * SLICES, UNIT_LANES = 4 * UNIT_ROWS, LANE_SLICES = 32 / UNIT_LANES;

extern "C" __global__ void __launch_bounds__(UNIT_THREADS * UNITS_PER_CTA, OVERLAPS ? 3 : 1) split_k_reduce(const __grid_constant__ Params p) {
    __shared__ Vec<Accum, 4> warp_sums[UNITS_PER_CTA][SLICES][2][32];
    if (OVERLAPS) pdl_trigger();
    const int unit_in_cta = (int)threadIdx.x / UNIT_THREADS, slice = (int)threadIdx.x / 32 % SLICES, lane = (int)threadIdx.x % 32;
    int row_set = (int)blockIdx.x * UNITS_PER_CTA + unit_in_cta;  // 8 rows of a warp, after the division
    const int thread = divmod_inplace(row_set, LANE_SLICES) * UNIT_LANES + lane % UNIT_LANES;
    const int fragment = row_set / 8, warp = row_set / 2 % 4, h = row_set % 2;
    const int splits = (int)p.splits, range = slice * LANE_SLICES + lane / UNIT_LANES;
    const int begin = range * splits / (SLICES * LANE_SLICES), end = (range + 1) * splits / (SLICES * LANE_SLICES);
    const Accum* from = p.partial + partial_offset(p, begin, fragment) + (h * 256 + warp * 32 + thread) * 4;
    const long long split_stride = partial_offset(p, 1, 0);
    pdl_wait();

    // main loop: this thread's range of the splits
    Vec<Accum, 4> sum[2]{};
    #pragma unroll 1
    for (int split = begin; split < end; split += LOADS_IN_FLIGHT, from += LOADS_IN_FLIGHT * split_stride) {
        Vec<Accum, 4> loaded[LOADS_IN_FLIGHT][2];
        #pragma unroll
        for (int i = 0; i < LOADS_IN_FLIGHT; ++i)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                loaded[i][half] = split + i < end ? load_vec<4>(from + i * split_stride + half * 512) : Vec<Accum, 4>{};
        #pragma unroll
        for (int i = 0; i < LOADS_IN_FLIGHT; ++i)
            #pragma unroll
            for (int e = 0; e < 8; ++e) sum[e / 4].data[e % 4] = wrapping_sum(sum[e / 4].data[e % 4], loaded[i][e / 4].data[e % 4]);
    }
    #pragma unroll
    for (int distance = UNIT_LANES; distance < 32; distance *= 2)
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            Accum& value = sum[e / 4].data[e % 4];
            value = wrapping_sum(value, __shfl_xor_sync(0xffffffffu, value, distance));
        }
    if constexpr (SLICES > 1) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) warp_sums[unit_in_cta][slice][half][lane] = sum[half];
        __syncthreads();
        if (slice > 0) return;
    }
    Accum v[8];
    #pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = sum[e / 4].data[e % 4];
    #pragma unroll
    for (int other = 1; other < SLICES; ++other)
        #pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = wrapping_sum(v[e], warp_sums[unit_in_cta][other][e / 4][lane].data[e % 4]);

    // epilogue
    const PartialTile partial = partial_tile_at(p, fragment);
    RowCoords rows = row_coords_at(p, partial.w, partial.row + warp * 16 + thread / 4 + 8 * h);
    rows.is_inside[0] &= lane < UNIT_LANES;
    const FragmentSlice fragment_of_row = fragment_slice(p, partial.w, rows, partial.block, 0);
    EpilogueOperands operands;
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) load_column_operands(p, fragment_of_row.coord[i], operands.columns[i]);
    store_fragment(p, fragment_of_row, operands, v);
}
