// fold_filters computes the stride folding of filters: taps of a convolution over pixels become taps over pixel pairs, with zeros
// where a pair contains a pixel that has no tap.
//
// Tile:    one element of the folded filter for a thread.
// Memory:  folded filters are channels last: (k, taps of the other axes, pairs, pixel of a pair, c).
// Threads: threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.

#include "pdl.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fold_filters(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const unsigned int i = blockIdx.x * (unsigned int)THREADS + threadIdx.x;
    if (i >= (unsigned int)p.count) return;
    const unsigned int channels = (unsigned int)p.channels, pixels = 2 * (unsigned int)p.pairs;
    unsigned int rem = i / channels;
    const unsigned int c = i - rem * channels;
    const int f2 = (int)(rem % pixels) - (int)p.lead;
    rem /= pixels;
    const unsigned int k = rem / (unsigned int)p.upper, upper = rem - k * (unsigned int)p.upper;
    const unsigned int f0 = upper / (unsigned int)p.size_1, f1 = upper - f0 * (unsigned int)p.size_1;
    Element value = Element();
    if (f2 >= 0 && f2 < (int)p.taps)
        value = p.from[k * p.stride_k + c * p.stride_c + p.first + f0 * p.stride_0 + f1 * p.stride_1 + f2 * p.stride_2];
    p.to[i] = value;
}
