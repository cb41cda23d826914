// F(2x2, 3x3): two outputs along an axis from four inputs and three taps, by four products. Points 0, 1, -1.
// Transforms of one axis; a tile takes them along columns, then along rows.

constexpr int M = 2, ALPHA = 4;

__device__ __forceinline__ void to_image(const float (&d)[ALPHA], float (&v)[ALPHA]) {
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
}

__device__ __forceinline__ void to_filter(const float (&g)[3], float (&u)[ALPHA]) {
    const float ends = 0.5f * (g[0] + g[2]), middle = 0.5f * g[1];
    u[0] = g[0];
    u[1] = ends + middle;
    u[2] = ends - middle;
    u[3] = g[2];
}

__device__ __forceinline__ void to_result(const float (&m)[ALPHA], float (&y)[M]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
}
