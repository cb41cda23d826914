// The coordinates of the thread's element. The last coordinate is a multiple of VEC_WIDTH.

#include "resample_axis.cuh"
#include "fast_division.cuh"

__device__ __forceinline__ void coordinates(Count i, const Params& p, int (&at)[RANK]) {
    Count rest = i;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        at[j] = 0;
        if (j >= FIRST_AXIS && j < FIRST_AXIS + MISSING_AXES) continue;
        const Count outer = quotient(rest, p.steps[j], p.magic[j]);
        at[j] = (int)(rest - outer * (Count)p.steps[j]);
        rest = outer;
    }
    at[0] = (int)rest;
    at[RANK - 1] *= VEC_WIDTH;
}
