// im2col copies, for every output pixel and filter tap, the image element that the tap reads there, or zero in the padding.
//
// Tile:    VEC_WIDTH adjacent elements of the matrix for a thread.
// Memory:  axes are counted in the memory order of the matrix. SPATIAL_AXIS[j] is the spatial axis that axis j of the matrix
//          moves along; it is -1 for axes that move through the memory of the image only.
// Threads: threads are independent; the grid strides over the matrix.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   RANK: axes of the matrix; SPATIAL: spatial axes, 3; VEC_WIDTH: elements of a vector; SPATIAL_AXIS: see above.

#include "fast_division.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) im2col(const __grid_constant__ Params p) {
    const Count count = (Count)p.count, step = (Count)gridDim.x * THREADS;
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        Count rem = i;
        long long offset = 0;
        int at[SPATIAL];
        #pragma unroll
        for (int d = 0; d < SPATIAL; ++d) at[d] = (int)p.start[d];
        #pragma unroll
        for (int j = RANK - 1; j >= 0; --j) {
            const Count outer = j == 0 ? 0 : quotient(rem, p.size[j], p.magic[j]);
            const int index = (int)(rem - outer * (Count)p.size[j]) * (j == RANK - 1 ? VEC_WIDTH : 1);
            rem = outer;
            if (SPATIAL_AXIS[j] < 0) offset += index * p.step[j];
            else at[SPATIAL_AXIS[j] < 0 ? 0 : SPATIAL_AXIS[j]] += index * (int)p.step[j];
        }
        bool inside = true;
        #pragma unroll
        for (int d = 0; d < SPATIAL; ++d) {
            if (SPATIAL_AXIS[RANK - 1] == d) continue;
            inside = inside && (unsigned int)at[d] < (unsigned int)p.image_size[d];
            offset += at[d] * p.image_stride[d];
        }
        Vec<Element, VEC_WIDTH> vec{};
        if constexpr (SPATIAL_AXIS[RANK - 1] < 0) {
            if (inside) vec = load_vec_read_only<VEC_WIDTH>(p.image + offset);
        } else {
            constexpr int along = SPATIAL_AXIS[RANK - 1];
            const int by = (int)p.step[RANK - 1];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                const int position = at[along] + e * by;
                if (inside && (unsigned int)position < (unsigned int)p.image_size[along])
                    vec.data[e] = load_vec_read_only<1>(p.image + offset + position * p.image_stride[along]).data[0];
            }
        }
        store_vec<VEC_WIDTH>(p.columns + (long long)i * VEC_WIDTH, vec);
    }
}
