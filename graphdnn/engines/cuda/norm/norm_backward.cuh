// The factors of a thread's rows in the gradient. `sum` and `dot` are the sums of g and of g times the normalized x over a row.
// If the scale changes along a row, g contains it, and `scale` is 1.
struct Row {
    Compute mean[ROW_WIDTH], inverse[ROW_WIDTH], scale[ROW_WIDTH], sum[ROW_WIDTH], dot[ROW_WIDTH];
};

// One vector of x and of the gradient.
struct Elements {
    Compute x[VECTOR], g[VECTOR];
};

// x minus its mean; the inverse standard deviation makes it the normalized x.
__device__ __forceinline__ Compute centered(const Elements& pack, const Row& row, int e) {
    return CENTERED ? pack.x[e] - row.mean[row_of(e)] : pack.x[e];
}

__device__ __forceinline__ Compute normalized(const Elements& pack, const Row& row, int e) {
    return centered(pack, row, e) * row.inverse[row_of(e)];
}

// Turns the sums into the terms of each element: scaled means.
__device__ __forceinline__ void average(const Params& p, Row& row) {
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        row.sum[i] = row.scale[i] * row.sum[i] / (Compute)p.elements;
        row.dot[i] = row.scale[i] * row.dot[i] / (Compute)p.elements;
    }
}

__device__ __forceinline__ Compute gradient(const Elements& pack, const Row& row, int e) {
    const int i = row_of(e);
    Compute inner = pack.g[e] * row.scale[i] - normalized(pack, row, e) * row.dot[i];
    if (CENTERED) inner -= row.sum[i];
    return inner * row.inverse[i];
}

// gradient() for rows whose factors are already multiplied (Running::conclude).
__device__ __forceinline__ Compute concluded_gradient(const Elements& pack, const Row& row, int e) {
    const int i = row_of(e);
    Compute inner = CENTERED ? row.sum[i] : (Compute)0;
    multiply_add(inner, row.dot[i], centered(pack, row, e));
    multiply_add(inner, row.scale[i], pack.g[e]);
    return inner;
}
