// fft_crop is the last launch of an FFT convolution: it crops the result from the inverse transforms of all tiles, scales it and
// applies the epilogue.
//
// Tile:    VEC_WIDTH adjacent results for a thread.
// Memory:  transforms are planes [outer][tile 0][tile 1][inner][row][column]; threads follow the memory order of the result.
// Threads: threads are independent; the grid strides over the result.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: elements of a vector, 1 to 4; AXIS: its logical axis; ORDER: logical axis of each axis in memory order, a
//   permutation of 0 to 5.
//   OUTER, INNER: logical axes that the planes count; SIGN: 1 or -1, the direction in which elements follow the planes.

#include "fast_division.cuh"
#include "coordinates.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) fft_crop(const __grid_constant__ Params p) {
    const Count count = (Count)p.count, step = (Count)gridDim.x * THREADS;
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        int counted[6], at[6];
        coordinates_of(i, p.size, p.magic, counted);
        #pragma unroll
        for (int j = 0; j < 6; ++j) at[ORDER[j]] = counted[j];
        at[AXIS] *= VEC_WIDTH;
        Accum acc[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            long long from = (at[OUTER] + (AXIS == OUTER ? e : 0)) * p.plane[0];
            from += (at[INNER] + (AXIS == INNER ? e : 0)) * p.plane[3];
            #pragma unroll
            for (int d = 0; d < 2; ++d) {
                const int element = at[4 + d] + (AXIS == 4 + d ? e : 0);
                const int tile = (int)quotient((unsigned int)element, p.advance[d], p.advance_magic[d]);
                from += tile * p.plane[1 + d];
                from += (SIGN * element + (int)p.first[d] - tile * (int)p.advance[d]) * p.plane[4 + d];
            }
            acc[e] = (Accum)(p.planes[from] * (float)p.scale);
        }
        epilogue(p, at, acc);
    }
}
