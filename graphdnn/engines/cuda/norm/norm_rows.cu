// norm_rows normalizes rows that fit into the registers of a CTA: y = (x - mean) / sqrt(variance + epsilon) * scale + bias.
// The variance is the mean square of the deviations from the mean, so that a large mean costs no digits.
//
// Tile:    COLUMNS rows for a CTA; each thread holds STEPS vectors of its row.
// Memory:  one read of x and one write of y, in vectors of VEC_WIDTH elements.
// Threads: THREADS_PER_ROW threads share a row. Shuffles reduce the sums of a row; shared memory combines the warps of a row.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   EXACT: 1 if THREADS_PER_ROW * STEPS vectors are a whole row, so that no bound is checked.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization.

#include "pdl.cuh"
#include "norm_register_rows.cuh"

// Rows whose statistics a thread stores
constexpr int STORED_ROWS_PER_THREAD = (ROWS_PER_THREAD + THREADS_PER_ROW - 1) / THREADS_PER_ROW;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_rows(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const ThreadSlot slot = thread_slot(p, blockIdx.x);
    int at[RANK];
    Elements vec[STEPS];
    load_row_vectors(p, slot, at, vec);
    Row row;
    of_row(p, at, row);
    Before before[STORED_ROWS_PER_THREAD];  // these loads overlap the wait of the reduction
    #pragma unroll
    for (int i = 0; i < STORED_ROWS_PER_THREAD; ++i)
        if (slot.row_thread + i * THREADS_PER_ROW < ROWS_PER_THREAD) read_before(p, at, slot.row_thread + i * THREADS_PER_ROW, before[i]);
    const Compute elements = (Compute)p.elements;
    if constexpr (CENTERED) {
        Compute sum[ROWS_PER_THREAD] = {};
        add_to_rows(vec, sum);
        reduce_row(sum, slot, Sum());
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) row.mean[i] = sum[i] / elements;
    }
    Compute squares[ROWS_PER_THREAD] = {};
    #pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (EXACT || (Count)(slot.row_thread + s * THREADS_PER_ROW) < (Count)p.count)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                const Compute deviation = CENTERED ? vec[s].x[e] - row.mean[row_of(e)] : vec[s].x[e];
                multiply_add(squares[row_of(e)], deviation, deviation);
            }
    reduce_row(squares, slot, Sum());
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        squares[i] /= elements;
        row.inverse[i] = inverse_deviation(squares[i], epsilon(p));
    }
    #pragma unroll
    for (int turn = 0; turn < STORED_ROWS_PER_THREAD; ++turn) {  // threads store the statistics of different rows in parallel
        const int row_index = turn * THREADS_PER_ROW + slot.row_thread;
        Compute mean = (Compute)0, variance = squares[0], inverse = row.inverse[0];
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            if (CENTERED && row_index == i) mean = row.mean[i];
            variance = row_index == i ? squares[i] : variance;
            inverse = row_index == i ? row.inverse[i] : inverse;
        }
        if (slot.is_live && row_index < ROWS_PER_THREAD) finish(p, at, row_index, mean, variance, inverse, before[turn]);
    }
    if (!slot.is_live) return;
    store_row_vectors(p, slot, at, vec, row);
}
