// pool_disjoint computes maximum or average pooling whose windows do not overlap. Sums run along the first axis first, in
// the order of the host engine.
//
// Tile:    VEC_WIDTH adjacent windows for a thread.
// Memory:  each element of x is read once, in accesses of X_VEC_WIDTH elements; y is written in vectors of VEC_WIDTH.
// Threads: one thread for VEC_WIDTH outputs; threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: outputs of a thread; X_VEC_WIDTH: elements of an access to x. Both are powers of two, 1 or more.
//   TAPS_0, TAPS_1, TAPS_2: extents of the window, 1 or more; RANK: axes of the index space.
//   IS_MAXIMUM: 1 for maximum pooling, 0 for averages.

#include "pdl.cuh"
#include "resample_axis.cuh"
#include "resample_coordinates.cuh"
#include "resample_first.cuh"
#include "pool_disjoint_windows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) pool_disjoint(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) return;
    int at[RANK];
    coordinates(i, p, at);
    Compute value[VEC_WIDTH][TAPS], result[VEC_WIDTH];
    over_accesses(at, [&](int row, int part, const int (&from)[RANK]) {
        Compute some[X_VEC_WIDTH];
        prologue(p, from, some);
        #pragma unroll
        for (int e = 0; e < X_VEC_WIDTH; ++e) value[window_of(part, e)][row + tap_of_row(part, e)] = some[e];
    });
    #pragma unroll
    for (int q = 0; q < VEC_WIDTH; ++q) {
        if constexpr (IS_MAXIMUM) {
            result[q] = maximum(value[q]);
        } else {
            result[q] = (Compute)0;
            #pragma unroll
            for (int t2 = 0; t2 < TAPS_2; ++t2) {
                Compute rows = (Compute)0;
                #pragma unroll
                for (int t1 = 0; t1 < TAPS_1; ++t1) {
                    Compute column = (Compute)0;
                    #pragma unroll
                    for (int t0 = 0; t0 < TAPS_0; ++t0) column += value[q][(t0 * TAPS_1 + t1) * TAPS_2 + t2];
                    rows += column;
                }
                result[q] += rows;
            }
            result[q] /= (Compute)TAPS;
        }
    }
    const int place[VEC_WIDTH] = {};  // unused
    epilogue(p, at, result, place);
}
