// rnn_previous_states copies the state before each time step of one direction into a dense matrix [rows, hidden], an operand
// of the weight gradient.
//
// Tile:    VEC_WIDTH adjacent units for a thread; blockIdx.x is the step.
// Memory:  both sides are row-major; stores are vectors of VEC_WIDTH elements.
// Threads: the CTAs of one step (blockIdx.y) share its sequences; threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. VEC_WIDTH: elements of a vector, a power of two that divides the hidden size.

#include "rnn_rows.cuh"
#include "rnn_states.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 4) rnn_previous_states(const __grid_constant__ Params p) {
    const int hidden = (int)p.hidden, t = (int)blockIdx.x, vecs = hidden / VEC_WIDTH;
    const int start = first_row(p, t), count = sequences(p, t) * vecs;
    for (int i = (int)(blockIdx.y * THREADS + threadIdx.x); i < count; i += (int)gridDim.y * THREADS) {
        const int b = i / vecs, u = i % vecs * VEC_WIDTH, before = row_before(p, t, b, p.back);
        To value[VEC_WIDTH];
        if (before >= 0) {
            Out some[VEC_WIDTH];
            load<VEC_WIDTH>(p.out + p.out_at + before * p.out_stride[0] + (p.first + u) * p.out_stride[1], Packed(), some);
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) value[e] = narrow<To>(widen<Compute>(some[e]));
        } else {
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                value[e] = narrow<To>(Compute(0));
                if (p.hx) value[e] = narrow<To>(widen<Compute>(state_of(p.hx, p.hx_stride, p.pseudo, b, u + e)));
            }
        }
        store<VEC_WIDTH>(p.to + (long long)(start + b) * hidden + u, Packed(), value);
    }
}
