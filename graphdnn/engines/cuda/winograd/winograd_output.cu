// Winograd output transform of F(4x4, 3x3), and the epilogue. A thread has a tile of one channel, or of WIDTH contiguous
// channels where CHANNELS_LAST; lanes follow the contiguous axis of the component sums.

constexpr int W = CHANNELS_LAST ? WIDTH : 1;

extern "C" __global__ void __launch_bounds__(THREADS, 2) winograd_output(const __grid_constant__ Params p) {
    const long long columns = CHANNELS_LAST ? p.outer / W : p.tiles;
    const long long all = (CHANNELS_LAST ? p.tiles : p.outer) * columns;
    for (long long n = (long long)blockIdx.x * THREADS + threadIdx.x; n < all; n += (long long)gridDim.x * THREADS) {
        const long long row = n / columns, column = (n - row * columns) * W;
        const float* const from = p.sums + row * p.pitch + column;
        float y[M][M][W];
        results_of(y, [&](int component) { return load_vec_read_only<W>(from + component * p.component); });
        finish(p, CHANNELS_LAST ? row : column, (int)(CHANNELS_LAST ? column : row), y);
    }
}
