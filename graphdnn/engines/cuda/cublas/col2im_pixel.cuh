// The output pixel that reads input position `at` with tap `tap` along an axis. Returns false where no pixel does.

#include "fast_division.cuh"

__device__ __forceinline__ bool output_pixel(const Params& p, int axis, int at, int tap, int& output) {
    const int q = at - (int)p.start[axis] - tap * (int)p.tap_step[axis];
    output = (int)quotient((unsigned int)(q < 0 ? 0 : q), p.stride[axis], p.stride_magic[axis]);
    return q == output * (int)p.stride[axis] && output < (int)p.output[axis];
}
