// norm_rows normalizes rows that fit into the registers of a CTA: y = (x - mean) / sqrt(variance + epsilon) * scale + bias.
// The variance is the mean square of the deviations from the mean, so that a large mean costs no digits.
//
// Tile:    COLUMNS rows for a CTA; each thread holds STEPS vectors of its row.
// Memory:  one read of x and one write of y, in vectors of VECTOR elements.
// Threads: LANES threads share a row; they reduce its sums by shuffles, and by shared memory if LANES exceeds a warp.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; LANES: threads of a row, a power of two.
//   VECTOR: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; KEPT: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VECTOR adjacent rows.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   EXACT: 1 if LANES * STEPS vectors are a whole row, so that no bound is checked.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization.

#include "pdl.cuh"
#include "norm_register_rows.cuh"

constexpr int ROWS_PER_THREAD = (ROW_WIDTH + LANES - 1) / LANES;  // rows whose statistics a thread stores

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_rows(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const ThreadSlot slot = thread_slot(p, blockIdx.x);
    int at[RANK];
    Elements pack[STEPS];
    load_row_vectors(p, slot, at, pack);
    Row row;
    of_row(p, at, row);
    Before before[ROWS_PER_THREAD];  // these loads overlap the wait of the reduction
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i)
        if (slot.lane + i * LANES < ROW_WIDTH) read_before(p, at, slot.lane + i * LANES, before[i]);
    const Compute elements = (Compute)p.elements;
    if constexpr (CENTERED) {
        Compute sum[ROW_WIDTH] = {};
        add_to_rows(pack, sum);
        reduce_row(sum, slot, Sum());
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) row.mean[i] = sum[i] / elements;
    }
    Compute squares[ROW_WIDTH] = {};
    #pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (EXACT || (Count)(slot.lane + s * LANES) < (Count)p.count)
            #pragma unroll
            for (int e = 0; e < VECTOR; ++e) {
                const Compute deviation = CENTERED ? pack[s].x[e] - row.mean[row_of(e)] : pack[s].x[e];
                multiply_add(squares[row_of(e)], deviation, deviation);
            }
    reduce_row(squares, slot, Sum());
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        squares[i] /= elements;
        row.inverse[i] = inverse_deviation(squares[i], epsilon(p));
    }
    #pragma unroll
    for (int turn = 0; turn < ROWS_PER_THREAD; ++turn) {  // threads store the statistics of different rows in parallel
        const int row_index = turn * LANES + slot.lane;
        Compute mean = (Compute)0, variance = squares[0], inverse = row.inverse[0];
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            if (CENTERED && row_index == i) mean = row.mean[i];
            variance = row_index == i ? squares[i] : variance;
            inverse = row_index == i ? row.inverse[i] : inverse;
        }
        if (slot.is_live && row_index < ROW_WIDTH) finish(p, at, row_index, mean, variance, inverse, before[turn]);
    }
    if (!slot.is_live) return;
    store_row_vectors(p, slot, at, pack, row);
}
