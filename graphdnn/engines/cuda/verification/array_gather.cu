// array_gather gathers slices of an array along one axis: output[outer, i, inner] = input[outer, slices[i], inner].
//
// Tile:    one byte for a thread.
// Memory:  input is [outer, extent, inner], output is [outer, count, inner]; both are contiguous, `inner` counts bytes.
// Threads: threads are independent; the grid strides over all bytes of the output. A CTA has 256 threads.

struct Params {
    const unsigned char* input;
    unsigned char* output;
    const long long* slices;
    long long outer;
    long long extent;
    long long inner;
    long long count;
};

extern "C" __global__ void __launch_bounds__(256) array_gather(const __grid_constant__ Params p) {
    const long long bytes = p.outer * p.count * p.inner, stride = (long long)gridDim.x * 256;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < bytes; i += stride) {
        const long long row = i / p.inner, byte = i - row * p.inner, outer = row / p.count;
        p.output[i] = p.input[(outer * p.extent + p.slices[row - outer * p.count]) * p.inner + byte];
    }
}
