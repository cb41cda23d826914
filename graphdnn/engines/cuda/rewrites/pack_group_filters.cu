// pack_group_filters computes the group packing of filters: the filters of several groups become the filters of one group, which
// read the channels of all packed groups and have zeros for the channels of other groups.
//
// Tile:    one element of the packed filter for a thread.
// Memory:  packed filters are channels last: (k, taps, channels of all packed groups).
// Threads: threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.

#include "pdl.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) pack_group_filters(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const unsigned int i = blockIdx.x * (unsigned int)THREADS + threadIdx.x;
    if (i >= (unsigned int)p.count) return;
    const unsigned int channels = (unsigned int)p.channels, groups = (unsigned int)p.groups;
    unsigned int rem = i / (channels * groups);
    const unsigned int at = i - rem * channels * groups;  // packed channel
    const unsigned int tap = rem % (unsigned int)p.taps;
    rem /= (unsigned int)p.taps;
    const unsigned int f2 = tap % (unsigned int)p.size_2, upper = tap / (unsigned int)p.size_2;
    const unsigned int f1 = upper % (unsigned int)p.size_1, f0 = upper / (unsigned int)p.size_1;
    const unsigned int group = at / channels, c = at - group * channels;
    Element value = Element();
    if (rem / (unsigned int)p.filters % groups == group)
        value = p.from[rem * p.stride_k + c * p.stride_c + f0 * p.stride_0 + f1 * p.stride_1 + f2 * p.stride_2];
    p.to[i] = value;
}
