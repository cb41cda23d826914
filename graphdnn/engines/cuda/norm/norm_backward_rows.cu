// norm_backward_rows computes the gradient of a normalization whose rows fit into the registers of a CTA:
// dx = inverse deviation * (g - mean(g) - xhat * mean(g * xhat)), where g is dy times the scale and xhat the normalized x.
//
// Tile:    COLUMNS rows for a CTA; each thread holds STEPS vectors of x and of dy.
// Memory:  x and dy are read once, dx is written once, in vectors of VEC_WIDTH elements.
// Threads: THREADS_PER_ROW threads share a row and reduce its two sums; the first of them stores dscale and dbias of the row.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   EXACT: 1 if THREADS_PER_ROW * STEPS vectors are a whole row, so that no bound is checked.

#include "pdl.cuh"
#include "norm_register_rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_backward_rows(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const ThreadSlot slot = thread_slot(p, blockIdx.x);
    int at[RANK];
    Elements vec[STEPS];
    load_row_vectors(p, slot, at, vec);
    Row row;
    of_row(p, at, row);
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) row.sum[i] = row.dot[i] = (Compute)0;
    #pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (EXACT || (Count)(slot.row_thread + s * THREADS_PER_ROW) < (Count)p.count)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                row.sum[row_of(e)] += vec[s].g[e];
                multiply_add(row.dot[row_of(e)], vec[s].g[e], normalized(vec[s], row, e));
            }
    reduce_row(row.sum, slot, Sum());
    reduce_row(row.dot, slot, Sum());
    if (!slot.is_live) return;
    if (slot.row_thread == 0)
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) finish(p, at, i, row.sum[i], row.dot[i]);
    average(p, row);
    store_row_vectors(p, slot, at, vec, row);
}
