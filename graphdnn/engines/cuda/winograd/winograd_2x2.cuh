// 1-D transforms of F(2x2, 3x3): two outputs from four inputs and three taps, by four products; interpolation points 0, 1, -1.
// A tile is transformed along its columns, then along its rows.

constexpr int M = 2, ALPHA = 4;

__device__ __forceinline__ void input_transform_1d(const float (&d)[ALPHA], float (&v)[ALPHA]) {
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
}

__device__ __forceinline__ void filter_transform_1d(const float (&g)[3], float (&u)[ALPHA]) {
    const float ends = 0.5f * (g[0] + g[2]), middle = 0.5f * g[1];
    u[0] = g[0];
    u[1] = ends + middle;
    u[2] = ends - middle;
    u[3] = g[2];
}

__device__ __forceinline__ void output_transform_1d(const float (&m)[ALPHA], float (&y)[M]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
}
