// The factors of a thread's rows in the gradient. `sum` and `dot` are the sums of g and of g times the normalized x over a row.
// If the scale changes along a row, g contains it, and `scale` is 1.
struct Row {
    Compute mean[ROWS_PER_THREAD], inverse[ROWS_PER_THREAD], scale[ROWS_PER_THREAD], sum[ROWS_PER_THREAD], dot[ROWS_PER_THREAD];
};

// One vector of x and of the gradient.
struct Elements {
    Compute x[VEC_WIDTH], g[VEC_WIDTH];
};

// x minus its mean; the inverse standard deviation makes it the normalized x.
__device__ __forceinline__ Compute centered(const Elements& vec, const Row& row, int e) {
    return CENTERED ? vec.x[e] - row.mean[row_of(e)] : vec.x[e];
}

__device__ __forceinline__ Compute normalized(const Elements& vec, const Row& row, int e) {
    return centered(vec, row, e) * row.inverse[row_of(e)];
}

// Turns the sums into the terms of each element: scaled means.
__device__ __forceinline__ void average(const Params& p, Row& row) {
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        row.sum[i] = row.scale[i] * row.sum[i] / (Compute)p.elements;
        row.dot[i] = row.scale[i] * row.dot[i] / (Compute)p.elements;
    }
}

__device__ __forceinline__ Compute gradient(const Elements& vec, const Row& row, int e) {
    const int i = row_of(e);
    Compute inner = vec.g[e] * row.scale[i] - normalized(vec, row, e) * row.dot[i];
    if (CENTERED) inner -= row.sum[i];
    return inner * row.inverse[i];
}

// gradient() for rows whose factors are already multiplied (Running::conclude).
__device__ __forceinline__ Compute concluded_gradient(const Elements& vec, const Row& row, int e) {
    const int i = row_of(e);
    Compute inner = CENTERED ? row.sum[i] : (Compute)0;
    multiply_add(inner, row.dot[i], centered(vec, row, e));
    multiply_add(inner, row.scale[i], vec.g[e]);
    return inner;
}
