// Disjoint windows: a thread has VEC_WIDTH windows that are contiguous in memory. The windows belong to adjacent channels, or to
// one row if ALONG.

#include "resample_axis.cuh"

constexpr int TAPS = TAPS_0 * TAPS_1 * TAPS_2;
constexpr int ACCESS_ELEMENTS = ALONG ? X_VEC_WIDTH : 1;  // elements of a row
constexpr int ACCESSES = (ALONG ? VEC_WIDTH * TAPS_2 : TAPS_2) / ACCESS_ELEMENTS;

// The window and the tap that element e of access `part` of a row belongs to.
__device__ __forceinline__ int window_of(int part, int e) { return ALONG ? (part * ACCESS_ELEMENTS + e) / TAPS_2 : e; }
__device__ __forceinline__ int tap_of_row(int part, int e) { return ALONG ? (part * ACCESS_ELEMENTS + e) % TAPS_2 : part; }

// Calls each(first tap of the row, access, coordinates in x) for every access to the windows at `at`, in the order of taps.
template <class Each> __device__ __forceinline__ void over_accesses(const int (&at)[RANK], Each each) {
    int to[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) to[j] = at[j];
    #pragma unroll
    for (int t0 = 0; t0 < TAPS_0; ++t0)
        #pragma unroll
        for (int t1 = 0; t1 < TAPS_1; ++t1)
            #pragma unroll
            for (int part = 0; part < ACCESSES; ++part) {
                to[FIRST_AXIS] = at[FIRST_AXIS] * TAPS_0 + t0;
                to[FIRST_AXIS + 1] = at[FIRST_AXIS + 1] * TAPS_1 + t1;
                to[FIRST_AXIS + 2] = at[FIRST_AXIS + 2] * TAPS_2 + part * ACCESS_ELEMENTS;
                each((t0 * TAPS_1 + t1) * TAPS_2, part, to);
            }
}
