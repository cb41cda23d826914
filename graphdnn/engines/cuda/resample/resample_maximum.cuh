// The maximum of a window and its index, one tap at a time.

#include "resample_axis.cuh"
#include "resample_order.cuh"

template <int V> __device__ __forceinline__ void resample(
    const Params& p, const int (&at)[RANK], Compute (&best)[V], int (&place)[V]) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    const int o[3] = {at[FIRST_AXIS], at[FIRST_AXIS + 1], at[FIRST_AXIS + 2]};
    const int taps0 = taps(p, 0), taps1 = taps(p, 1), taps2 = taps(p, 2);
    bool seen = false;
    int position = 0;
    for (int e = 0; e < V; ++e) best[e] = lowest<Compute>(), place[e] = 0;
    for (int t0 = 0; t0 < taps0; ++t0) {
        const Tap tap0 = tap_of(p, 0, o[0], t0);
        from[FIRST_AXIS] = tap0.source;
        for (int t1 = 0; t1 < taps1; ++t1) {
            const Tap tap1 = tap_of(p, 1, o[1], t1);
            from[FIRST_AXIS + 1] = tap1.source;
            for (int t2 = 0; t2 < taps2; ++t2, ++position) {
                const Tap tap2 = tap_of(p, 2, o[2], t2);
                from[FIRST_AXIS + 2] = tap2.source;
                const bool inside = tap0.used && tap1.used && tap2.used;
                if (PADDING != ZERO_PAD && !inside) continue;
                Compute value[V];
                for (int e = 0; e < V; ++e) value[e] = (Compute)0;
                if (inside) prologue(p, from, value);
                for (int e = 0; e < V; ++e) {
                    const bool better = !seen || is_greater(value[e], best[e]);
                    best[e] = better ? value[e] : best[e];
                    place[e] = better ? position : place[e];
                }
                seen = true;
            }
        }
    }
    if (PADDING != NEG_INF_PAD || seen) return;
    // A window of padding only: the index of the first element along the axes before the axis that is all padding.
    int step = taps0 * taps1 * taps2, found = 0;
    #pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        const int start = window_start(p, axis, o[axis]), first = start < 0 ? -start : 0;
        if (elements_inside(p, axis, o[axis]) <= 0) break;
        step /= taps(p, axis);
        found += first * step;
    }
    for (int e = 0; e < V; ++e) place[e] = found;
}
