// pool_disjoint_backward computes the gradient of pooling whose windows do not overlap: an element of x is in one window at
// most. dx is dy / taps for averages; for maxima the first element that equals the maximum receives dy.
//
// Tile:    VEC_WIDTH adjacent windows for a thread.
// Memory:  x and dy are read once and dx is written once. Elements outside all windows receive 0.
// Threads: one thread for VEC_WIDTH windows; threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: windows of a thread; X_VEC_WIDTH: elements of an access to x and dx. Both are powers of two, 1 or more.
//   TAPS: elements of a window; RANK: axes of the index space; IS_MAXIMUM: 1 for maximum pooling, 0 for averages.
//   WHOLE: 1 if windows cover all of x.

#include "pdl.cuh"
#include "resample_axis.cuh"
#include "resample_coordinates.cuh"
#include "resample_first.cuh"
#include "pool_disjoint_windows.cuh"

// An average needs no search for the maximum.
template <int V> __device__ void prologue(const Params&, const int (&)[RANK], Compute (&)[V]) {}

extern "C" __global__ void __launch_bounds__(THREADS) pool_disjoint_backward(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) return;
    int at[RANK];
    coordinates(i, p, at);
    bool is_window = true;
    #pragma unroll
    for (int axis = 0; axis < 3; ++axis) is_window = is_window && at[FIRST_AXIS + axis] < (int)p.outputs[axis];
    Compute sent[VEC_WIDTH] = {}, value[VEC_WIDTH][TAPS];
    FirstMaximum<TAPS> gets[VEC_WIDTH];
    if (is_window) {
        gradient(p, at, sent);
        if constexpr (IS_MAXIMUM)
            over_accesses(at, [&](int row, int part, const int (&from)[RANK]) {
                Compute some[X_VEC_WIDTH];
                prologue(p, from, some);
                #pragma unroll
                for (int e = 0; e < X_VEC_WIDTH; ++e) value[window_of(part, e)][row + tap_of_row(part, e)] = canonical(some[e]);
            });
    }
    #pragma unroll
    for (int q = 0; q < VEC_WIDTH; ++q) {
        gets[q] = first_maximum(value[q], is_window && IS_MAXIMUM ? maximum(value[q]) : (Compute)0);
        if constexpr (!IS_MAXIMUM) sent[q] /= (Compute)TAPS;
    }
    over_accesses(at, [&](int row, int part, const int (&to)[RANK]) {
        Compute some[X_VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < X_VEC_WIDTH; ++e) {
            const int q = window_of(part, e);
            some[e] = gets[q].is[row + tap_of_row(part, e)] ? sent[q] : (Compute)0;
        }
        bool is_inside = true;
        #pragma unroll
        for (int axis = 0; axis < 3; ++axis) is_inside = is_inside && to[FIRST_AXIS + axis] < (int)p.image[axis];
        if (WHOLE || is_inside) epilogue(p, to, some);
    });
}
