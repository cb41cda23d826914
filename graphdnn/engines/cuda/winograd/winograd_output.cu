// winograd_output computes the Winograd output transform y = A^T m A of F(4x4, 3x3), and the epilogue.
//
// Tile:    one image tile of one channel for a thread, or of VEC_WIDTH contiguous channels if CHANNELS_LAST.
// Memory:  component sums are [component][row][column]; the lanes of a warp follow the contiguous axis.
// Threads: threads are independent; the grid strides over all tiles and channels.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: channels of a vector, a power of two; CHANNELS_LAST: 1 for channels-last results.

#include "winograd_algorithm.cuh"
#include "winograd_finish.cuh"

constexpr int W = CHANNELS_LAST ? VEC_WIDTH : 1;

extern "C" __global__ void __launch_bounds__(THREADS, 2) winograd_output(const __grid_constant__ Params p) {
    const long long columns = CHANNELS_LAST ? p.outer / W : p.tiles;
    const long long all = (CHANNELS_LAST ? p.tiles : p.outer) * columns;
    for (long long n = (long long)blockIdx.x * THREADS + threadIdx.x; n < all; n += (long long)gridDim.x * THREADS) {
        const long long row = n / columns, column = (n - row * columns) * W;
        const float* const from = p.sums + row * p.pitch + column;
        float y[M][M][W];
        output_transform(y, [&](int component) { return load_vec_read_only<W>(from + component * p.component); });
        store_tile(p, CHANNELS_LAST ? row : column, (int)(CHANNELS_LAST ? column : row), y);
    }
}
