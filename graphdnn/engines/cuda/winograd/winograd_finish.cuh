// Output transform of a tile, from its components to M x M results, and the epilogue of VEC_WIDTH elements along channels or q.

#include "winograd_algorithm.cuh"
#include "winograd_tile.cuh"

// y = A^T m A for W channels; component(i) returns component i of m.
template <int W, class Component> __device__ __forceinline__ void output_transform(float (&y)[M][M][W], Component component) {
    float rows[M][ALPHA][W];
    #pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
        Vec<float, W> result[ALPHA];
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) result[i] = component(i * ALPHA + j);
        #pragma unroll
        for (int e = 0; e < W; ++e) {
            float in[ALPHA], out[M];
            #pragma unroll
            for (int i = 0; i < ALPHA; ++i) in[i] = result[i].data[e];
            output_transform_1d(in, out);
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
            output_transform_1d(in, out);
            #pragma unroll
            for (int j = 0; j < M; ++j) y[i][j][e] = out[j];
        }
}

template <int W> __device__ __forceinline__ void store_tile(const Params& p, long long index, int k, const float (&y)[M][M][W]) {
    const Tile tile = tile_of(p, index);
    #pragma unroll
    for (int i = 0; i < M; ++i)
        #pragma unroll
        for (int j = 0; j < M; j += CHANNELS_LAST ? 1 : VEC_WIDTH) {
            const int at[6] = {tile.n, 0, k, 0, tile.p * M + i, tile.q * M + j};
            if (at[4] >= p.size[0] || at[5] >= p.size[1]) continue;
            float acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = CHANNELS_LAST ? y[i][j][e] : y[i][j + e][0];
            epilogue(p, at, acc);
        }
}
