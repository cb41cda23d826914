// fft_pad is the first launch of an FFT convolution: it copies windows of an operand to zero-padded fp32 planes. Position t of a
// plane holds element SIGN * u + shift + tile * advance, where u is t, or -t modulo the size if REVERSED.
//
// Tile:    one element of a plane for a thread.
// Memory:  planes are [outer][tile 0][tile 1][inner][row][column]; threads follow their memory order.
// Threads: threads are independent; the grid strides over the planes.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. SIGN: 1 or -1; REVERSED: 1 to reverse the order of a plane, see above.

#include "coordinates.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fft_pad(const __grid_constant__ Params p) {
    const Count count = (Count)p.count, step = (Count)gridDim.x * THREADS;
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        int at[6];
        coordinates_of(i, p.size, p.magic, at);
        long long offset = at[0] * p.stride[0] + at[3] * p.stride[1];
        bool inside = true;
        #pragma unroll
        for (int d = 0; d < 2; ++d) {
            const int t = at[4 + d], u = REVERSED ? (t == 0 ? 0 : (int)p.size[4 + d] - t) : t;
            const int element = SIGN * u + (int)p.shift[d] + at[1 + d] * (int)p.advance[d];
            inside = inside && u < (int)p.limit[d] && (unsigned int)element < (unsigned int)p.source_size[d];
            offset += element * p.stride[2 + d];
        }
        p.target[i] = inside ? widen<float>(load_vec_read_only<1>(p.source + offset).data[0]) : 0.0f;
    }
}
