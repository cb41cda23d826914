// grid_sample computes y[n, c, row, column]: the bilinear interpolation of image x[n, c] at the position of the grid.
//
// Tile:    CHANNELS channels of one position for a thread.
// Memory:  threads follow the memory order of y. VEC_WIDTH > 1: channels are contiguous and one vector. Otherwise the channels of a
//          thread are p.apart channels from each other, so that adjacent threads access adjacent elements.
// Threads: threads are independent; the grid strides over y.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   CHANNELS: channels of a thread or a CTA; VEC_WIDTH: channels of a vector, 1 if channels are not contiguous.
//   AT_N, AT_C, AT_ROW, AT_COLUMN: positions of the axes in the memory order of y, a permutation of 0 to 3.

#include "coordinates.cuh"
#include "grid_sample.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample(const __grid_constant__ Params p) {
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < (Count)p.count; i += (Count)gridDim.x * THREADS) {
        int at[4];
        coordinates_of(i, p.size, p.magic, at);
        const int n = at[AT_N], first = at[AT_C], row = at[AT_ROW], column = at[AT_COLUMN];
        const Place place = place_at(n, row, column, p);
        Index from[4];
        Compute weight[4];
        bool counts[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int h = place.top + k / 2, w = place.left + k % 2;
            counts[k] = place.is_near && is_inside(h, w, p);
            from[k] = (Index)n * (Index)p.x_stride[0] + h * (Index)p.x_stride[2] + w * (Index)p.x_stride[3];
            const Compute across = k % 2 ? place.right_share : Compute(1) - place.right_share;
            const Compute down = k / 2 ? place.bottom_share : Compute(1) - place.bottom_share;
            weight[k] = across * down;
        }
        const Index to = (Index)n * (Index)p.y_stride[0] + row * (Index)p.y_stride[2] + column * (Index)p.y_stride[3];
        if constexpr (VEC_WIDTH > 1) {
            Compute sum[VEC_WIDTH] = {};
            #pragma unroll
            for (int corner = 0; corner < 4; ++corner)
                if (counts[corner]) add_vec(p.x + from[corner] + first * VEC_WIDTH, weight[corner], sum);
            store(p, to + first * VEC_WIDTH, sum);
        } else {
            #pragma unroll
            for (int k = 0; k < CHANNELS; ++k) {
                const int c = first + k * (int)p.apart;
                if (c >= (int)p.channels) continue;
                Compute sum[1] = {};
                #pragma unroll
                for (int corner = 0; corner < 4; ++corner)
                    if (counts[corner])
                        sum[0] += widen<Compute>(p.x[from[corner] + c * (Index)p.x_stride[1]]) * weight[corner];
                store(p, to + c * (Index)p.y_stride[1], sum);
            }
        }
    }
}
