// norm_apply is the last pass of a normalization: it computes y (or dx) from x and known statistics of each row.
//
// Tile:    COLUMNS rows for a CTA (blockIdx.x), and one split of their elements (blockIdx.y).
// Memory:  x is read once and y is written once, in vectors of VEC_WIDTH elements. CTAs traverse the splits from the end,
//          because the previous pass read the last elements last and L2 may still hold them.
// Threads: THREADS_PER_ROW threads share a row. A thread processes STEPS vectors at a time; their loads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization.

extern "C" __global__ void __launch_bounds__(THREADS) norm_apply(const __grid_constant__ Params p) {
    const ThreadSlot slot = thread_slot(p, blockIdx.x);
    if (!slot.is_live) return;
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, slot.row, at);
    Row row;
    of_row(p, at, row);
    const Count begin = (Count)(gridDim.y - 1 - blockIdx.y) * (Count)p.per_split;
    const Count limit = begin + (Count)p.per_split, end = limit < (Count)p.count ? limit : (Count)p.count;
    Count i = begin + slot.row_thread;
    for (; i + (STEPS - 1) * THREADS_PER_ROW < end; i += STEPS * THREADS_PER_ROW) {
        Elements vec[STEPS];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, i + s * THREADS_PER_ROW, at);
            load_elements(p, at, vec[s]);
        }
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, i + s * THREADS_PER_ROW, at);
            epilogue(p, at, vec[s], row);
        }
    }
    for (; i < end; i += THREADS_PER_ROW) {
        Elements vec;
        locate_element(p, i, at);
        load_elements(p, at, vec);
        epilogue(p, at, vec, row);
    }
}
