// Averages and interpolations, one tap at a time.

#include "resample_axis.cuh"

template <int V> __device__ __forceinline__ void resample(
    const Params& p, const int (&at)[RANK], Compute (&result)[V], int (&place)[V]) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    const int o[3] = {at[FIRST_AXIS], at[FIRST_AXIS + 1], at[FIRST_AXIS + 2]};
    // -0 is the identity of addition, including the sign of zeros. Sums run over the first axis first, as on the host.
    for (int e = 0; e < V; ++e) result[e] = -(Compute)0;
    for (int t2 = 0; t2 < tap_count(p, 2); ++t2) {
        const Tap tap2 = tap_of(p, 2, o[2], t2);
        Compute plane[V];
        for (int e = 0; e < V; ++e) plane[e] = -(Compute)0;
        from[FIRST_AXIS + 2] = tap2.source;
        const int taps1 = SPATIAL > 1 ? tap_count(p, 1) : 1;
        for (int t1 = 0; t1 < taps1; ++t1) {
            const Tap tap1 = tap_of(p, 1, o[1], t1);
            Compute column[V];
            for (int e = 0; e < V; ++e) column[e] = -(Compute)0;
            from[FIRST_AXIS + 1] = tap1.source;
            const int taps0 = SPATIAL > 2 ? tap_count(p, 0) : 1;
            for (int t0 = 0; t0 < taps0; ++t0) {
                const Tap tap0 = tap_of(p, 0, o[0], t0);
                Compute value[V];
                for (int e = 0; e < V; ++e) value[e] = (Compute)0;
                from[FIRST_AXIS] = tap0.source;
                if (tap0.used && tap1.used && tap2.used) {
                    prologue(p, from, value);
                    for (int e = 0; e < V; ++e) value[e] *= tap0.weight;
                }
                for (int e = 0; e < V; ++e) column[e] += value[e];
            }
            for (int e = 0; e < V; ++e) plane[e] += tap1.used ? column[e] * tap1.weight : (Compute)0;
        }
        for (int e = 0; e < V; ++e) result[e] += tap2.used ? plane[e] * tap2.weight : (Compute)0;
    }
    if constexpr (MODE == AVERAGE_INCLUDING || MODE == AVERAGE_EXCLUDING) {
        const Compute count = divisor(p, o);
        for (int e = 0; e < V; ++e) result[e] /= count;
    }
}
