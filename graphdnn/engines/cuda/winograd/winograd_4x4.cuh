// 1-D transforms of F(4x4, 3x3): four outputs from six inputs and three taps, by six products. The interpolation points are 0,
// 1, -1, 1/2, -2; with the usual points 0, 1, -1, 2, -2 errors would be 1.5 times as large.
// A tile is transformed along its columns, then along its rows.

constexpr int M = 4, ALPHA = 6;

__device__ __forceinline__ void input_transform_1d(const float (&d)[ALPHA], float (&v)[ALPHA]) {
    const float even = d[4] - d[2], odd = d[3] - d[1];
    v[0] = fmaf(1.5f, odd, d[0] - d[2]) + even;
    v[1] = fmaf(2.5f, d[3], fmaf(0.5f, d[2], d[4] - d[1]));
    v[2] = fmaf(-2.5f, d[2], fmaf(0.5f, d[3], d[4] + d[1]));
    v[3] = fmaf(2.0f, odd, even);
    v[4] = fmaf(-0.5f, odd, even);
    v[5] = fmaf(1.5f, even, d[5] - d[3]) - odd;
}

__device__ __forceinline__ void filter_transform_1d(const float (&g)[3], float (&u)[ALPHA]) {
    const float third = 1.0f / 3.0f, fifteenth = 4.0f / 15.0f;
    u[0] = g[0];
    u[1] = third * (g[0] + g[2] + g[1]);
    u[2] = third * (g[1] - (g[0] + g[2]));
    u[3] = -fifteenth * (4.0f * g[0] + 2.0f * g[1] + g[2]);
    u[4] = fifteenth * (0.25f * g[0] - 0.5f * g[1] + g[2]);
    u[5] = g[2];
}

__device__ __forceinline__ void output_transform_1d(const float (&m)[ALPHA], float (&y)[M]) {
    const float sum = m[1] + m[2], difference = m[1] - m[2];
    y[0] = m[0] + sum + (m[3] + m[4]);
    y[1] = difference + fmaf(0.5f, m[3], -2.0f * m[4]);
    y[2] = sum + fmaf(0.25f, m[3], 4.0f * m[4]);
    y[3] = difference + fmaf(0.125f, m[3], -8.0f * m[4]) + m[5];
}
