// Results of F(4x4, 3x3) from their components, and the epilogue. A thread has a tile of one channel, or of WIDTH
// channels where those are neighbours (CHANNELS_LAST); lanes run along the axis that is contiguous in the sums.

constexpr int W = CHANNELS_LAST ? WIDTH : 1;

extern "C" __global__ void __launch_bounds__(THREADS, 2) winograd_output(const __grid_constant__ Params p) {
    const long long columns = CHANNELS_LAST ? p.outer / W : p.tiles;
    const long long all = (CHANNELS_LAST ? p.tiles : p.outer) * columns;
    for (long long n = (long long)blockIdx.x * THREADS + threadIdx.x; n < all; n += (long long)gridDim.x * THREADS) {
        const long long row = n / columns, column = (n - row * columns) * W;
        const float* const from = p.sums + row * p.pitch + column;
        float rows[M][ALPHA][W], y[M][M][W];
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) {
            Pack<float, W> found[ALPHA];
            #pragma unroll
            for (int i = 0; i < ALPHA; ++i) found[i] = load_pack_read_only<W>(from + (i * ALPHA + j) * p.component);
            #pragma unroll
            for (int e = 0; e < W; ++e) {
                float in[ALPHA], out[M];
                #pragma unroll
                for (int i = 0; i < ALPHA; ++i) in[i] = found[i].at[e];
                to_result(in, out);
                #pragma unroll
                for (int i = 0; i < M; ++i) rows[i][j][e] = out[i];
            }
        }
        #pragma unroll
        for (int i = 0; i < M; ++i)
            #pragma unroll
            for (int e = 0; e < W; ++e) {
                float in[ALPHA], out[M];
                #pragma unroll
                for (int j = 0; j < ALPHA; ++j) in[j] = rows[i][j][e];
                to_result(in, out);
                #pragma unroll
                for (int j = 0; j < M; ++j) y[i][j][e] = out[j];
            }
        finish(p, CHANNELS_LAST ? row : column, (int)(CHANNELS_LAST ? column : row), y);
    }
}
