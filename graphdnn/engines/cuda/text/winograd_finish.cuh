// The M x M results of a tile into memory, through the epilogue: WIDTH neighbours at once, along channels or along q.
__device__ __forceinline__ void finish(const Params& p, long long tile, int k, const float (&y)[M][M][CHANNELS_LAST ? WIDTH : 1]) {
    const unsigned int row = (unsigned int)tile / (unsigned int)p.tiles_q, tq = (unsigned int)tile - row * (unsigned int)p.tiles_q;
    const unsigned int n = row / (unsigned int)p.tiles_p, tp = row - n * (unsigned int)p.tiles_p;
    #pragma unroll
    for (int i = 0; i < M; ++i)
        #pragma unroll
        for (int j = 0; j < M; j += CHANNELS_LAST ? 1 : WIDTH) {
            const int at[6] = {(int)n, 0, k, 0, (int)tp * M + i, (int)tq * M + j};
            if (at[4] >= p.size[0] || at[5] >= p.size[1]) continue;
            float acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = CHANNELS_LAST ? y[i][j][e] : y[i][j + e][0];
            epilogue(p, at, acc);
        }
}
