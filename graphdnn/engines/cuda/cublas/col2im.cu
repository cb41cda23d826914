// col2im computes the data gradient from the gradient of the im2col matrix. Each element of dx adds, tap by tap in a fixed order,
// all matrix elements that im2col copied it to.
//
// Tile:    VEC_WIDTH adjacent elements of dx for a thread.
// Memory:  coordinates (n, g, c, i0, i1, i2) are counted in the memory order of dx.
// Threads: threads are independent; the grid strides over dx.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: elements of a vector; AXIS: its logical axis; ORDER: logical axis of each axis in memory order, a permutation of
//   0 to 5.

#include "coordinates.cuh"
#include "col2im_pixel.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 4) col2im(const __grid_constant__ Params p) {
    const Count count = (Count)p.count, step = (Count)gridDim.x * THREADS;
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        int counted[6], at[6];
        coordinates_of(i, p.size, p.magic, counted);
        #pragma unroll
        for (int j = 0; j < 6; ++j) at[ORDER[j]] = counted[j];
        at[AXIS] *= VEC_WIDTH;
        const long long base = at[0] * p.column_n + at[1] * p.column_g + at[2] * p.column_c;
        Accum acc[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = 0;
        for (int f0 = 0; f0 < (int)p.filter[0]; ++f0) {
            int o0;
            if (!output_pixel(p, 0, at[3], f0, o0)) continue;
            for (int f1 = 0; f1 < (int)p.filter[1]; ++f1) {
                int o1;
                if (!output_pixel(p, 1, at[4], f1, o1)) continue;
                const long long row = base + o0 * p.column_pixel[0] + f0 * p.column_tap[0]
                    + o1 * p.column_pixel[1] + f1 * p.column_tap[1];
                for (int f2 = 0; f2 < (int)p.filter[2]; ++f2) {
                    int o2;
                    if (!output_pixel(p, 2, at[5], f2, o2)) continue;
                    const long long from = row + o2 * p.column_pixel[2] + f2 * p.column_tap[2];
                    const Vec<Accum, VEC_WIDTH> vec = load_vec_read_only<VEC_WIDTH>(p.columns + from);
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH; ++e) acc[e] += vec.data[e];
                }
            }
        }
        epilogue(p, at, acc);
    }
}
