// resample_backward computes the gradient of resampling as a gather: every element of dx sums the contributions of all
// windows that read it, in a fixed order. It serves every mode, window and stride.
//
// Tile:    VEC_WIDTH adjacent elements of dx for a thread.
// Memory:  dy is read in accesses of LOAD_VEC_WIDTH elements; dx is written in vectors of VEC_WIDTH.
// Threads: one thread for VEC_WIDTH elements; the grid strides over dx.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH, LOAD_VEC_WIDTH: elements of a store and of a load; LOAD_VEC_WIDTH divides VEC_WIDTH.
//   MODE, PADDING: enumerators of resample_axis.cuh; SPATIAL: spatial axes, 1 to 3; CHANNELS_LAST: 1 for channels-last tensors.

#include "pdl.cuh"
#include "resample_axis.cuh"
#include "resample_coordinates.cuh"

// The contribution of output o to element i along one axis: its value, once for every tap that reads the element.
template <int V> __device__ __forceinline__ void add_taps(const Params& p, int axis, int o, int i, const Compute (&value)[V], Compute (&sum)[V]) {
    const Range reads = reading_taps(p, axis, o, i);
    for (int t = reads.first; t <= reads.last; ++t) {
        const Tap tap = tap_of(p, axis, o, t);
        if (tap.used)
            for (int e = 0; e < V; ++e) sum[e] += value[e] * tap.weight;
    }
}

template <int V> __device__ __forceinline__ void linear(const Params& p, const int (&i)[3], int (&from)[RANK], Compute (&result)[V]) {
    for (int e = 0; e < V; ++e) result[e] = (Compute)0;
    const Range outputs0 = reading_outputs(p, 0, i[0]), outputs1 = reading_outputs(p, 1, i[1]);
    const Range outputs2 = reading_outputs(p, 2, i[2]);
    int o[3];
    for (o[2] = outputs2.first; o[2] <= outputs2.last; ++o[2]) {
        Compute plane[V];
        for (int e = 0; e < V; ++e) plane[e] = (Compute)0;
        for (o[1] = outputs1.first; o[1] <= outputs1.last; ++o[1]) {
            Compute column[V];
            for (int e = 0; e < V; ++e) column[e] = (Compute)0;
            for (o[0] = outputs0.first; o[0] <= outputs0.last; ++o[0]) {
                #pragma unroll
                for (int axis = MISSING_AXES; axis < 3; ++axis) from[FIRST_AXIS + axis] = o[axis];
                Compute value[V];
                prologue(p, from, value);
                if constexpr (MODE == AVERAGE_INCLUDING || MODE == AVERAGE_EXCLUDING) {
                    const Compute count = divisor(p, o);
                    for (int e = 0; e < V; ++e) value[e] /= count;
                }
                add_taps<V>(p, 0, o[0], i[0], value, column);
            }
            add_taps<V>(p, 1, o[1], i[1], column, plane);
        }
        add_taps<V>(p, 2, o[2], i[2], plane, result);
    }
}

// An output adds its value to the element at the index of its maximum.
template <int V> __device__ __forceinline__ void routed(const Params& p, const int (&i)[3], int (&from)[RANK], Compute (&result)[V]) {
    for (int e = 0; e < V; ++e) result[e] = (Compute)0;
    const Range outputs0 = reading_outputs(p, 0, i[0]), outputs1 = reading_outputs(p, 1, i[1]);
    const Range outputs2 = reading_outputs(p, 2, i[2]);
    const int taps1 = taps(p, 1), taps2 = taps(p, 2);
    for (int o0 = outputs0.first; o0 <= outputs0.last; ++o0) {
        const Range reads0 = reading_taps(p, 0, o0, i[0]);
        for (int o1 = outputs1.first; o1 <= outputs1.last; ++o1) {
            const Range reads1 = reading_taps(p, 1, o1, i[1]);
            for (int o2 = outputs2.first; o2 <= outputs2.last; ++o2) {
                const Range reads2 = reading_taps(p, 2, o2, i[2]);
                if (SPATIAL > 2) from[FIRST_AXIS] = o0;
                if (SPATIAL > 1) from[FIRST_AXIS + 1] = o1;
                from[FIRST_AXIS + 2] = o2;
                if (reads0.first > reads0.last || reads1.first > reads1.last || reads2.first > reads2.last) continue;
                Place place[V];
                Compute value[V];
                places(p, from, place);
                prologue(p, from, value);
                const Place wanted = (Place)((reads0.first * taps1 + reads1.first) * taps2 + reads2.first);
                for (int e = 0; e < V; ++e) {
                    bool lands = place[e] == wanted;
                    if constexpr (CLAMPS_TO_EDGE) {  // several taps may read an edge
                        const int here = place[e] >= 0 && place[e] < (Place)p.volume ? (int)place[e] : -1;
                        const int t2 = here % taps2, t1 = here / taps2 % taps1, t0 = here / taps2 / taps1;
                        lands = here >= 0 && t0 >= reads0.first && t0 <= reads0.last && t1 >= reads1.first &&
                                t1 <= reads1.last && t2 >= reads2.first && t2 <= reads2.last;
                    }
                    if (lands) result[e] = wrapping_sum(result[e], value[e]);
                }
            }
        }
    }
}

template <int V> __device__ __forceinline__ void gather(const Params& p, const int (&i)[3], int (&from)[RANK], Compute (&result)[V]) {
    if constexpr (MODE == MAXIMUM) routed<V>(p, i, from, result);
    else linear<V>(p, i, from, result);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) resample_backward(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    for (Count c = (Count)blockIdx.x * THREADS + threadIdx.x; c < (Count)p.count; c += (Count)gridDim.x * THREADS) {
        int at[RANK];
        coordinates(c, p, at);
        Compute result[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; e += LOAD_VEC_WIDTH) {
            int from[RANK];
            #pragma unroll
            for (int j = 0; j < RANK; ++j) from[j] = at[j];
            from[RANK - 1] += e;
            const int i[3] = {from[FIRST_AXIS], from[FIRST_AXIS + 1], from[FIRST_AXIS + 2]};
            Compute some[LOAD_VEC_WIDTH];
            gather<LOAD_VEC_WIDTH>(p, i, from, some);
            #pragma unroll
            for (int k = 0; k < LOAD_VEC_WIDTH; ++k) result[e + k] = some[k];
        }
        epilogue(p, at, result);
    }
}
