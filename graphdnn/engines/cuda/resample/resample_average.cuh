// Averages over windows of any size: the sum of the elements inside x, with several loads in flight.

#include "resample_axis.cuh"

// The sum runs over the first axis first, as on the host. -0 is the identity of addition; padding adds +0.
template <int AXIS, int V> __device__ __forceinline__ void window_sum(
    const Params& p, const int (&first)[3], const int (&end)[3], int (&from)[RANK], Compute (&sum)[V]) {
    if constexpr (AXIS < MISSING_AXES) {
        prologue(p, from, sum);
    } else {
        constexpr int TURNS = AXIS == MISSING_AXES ? 4 : 1;
        #pragma unroll
        for (int e = 0; e < V; ++e) sum[e] = -(Compute)0;
        #pragma unroll(TURNS)
        for (int i = first[AXIS]; i < end[AXIS]; ++i) {
            Compute value[V];
            from[FIRST_AXIS + AXIS] = i;
            window_sum<AXIS - 1, V>(p, first, end, from, value);
            #pragma unroll
            for (int e = 0; e < V; ++e) sum[e] += value[e];
        }
        if (end[AXIS] - first[AXIS] < taps(p, AXIS))
            for (int e = 0; e < V; ++e) sum[e] += (Compute)0;
    }
}

template <int V> __device__ __forceinline__ void resample(
    const Params& p, const int (&at)[RANK], Compute (&result)[V], int (&place)[V]) {
    int from[RANK], first[3], end[3];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    const int o[3] = {at[FIRST_AXIS], at[FIRST_AXIS + 1], at[FIRST_AXIS + 2]};
    #pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        const int start = window_start(p, axis, o[axis]), last = start + taps(p, axis), size = (int)p.image[axis];
        first[axis] = start > 0 ? start : 0;
        end[axis] = last < size ? last : size;
    }
    window_sum<2, V>(p, first, end, from, result);
    const Compute count = divisor(p, o);
    #pragma unroll
    for (int e = 0; e < V; ++e) result[e] /= count;
}
