// What the gradient of a normalization knows of the rows of a thread. `sum` and `dot` are the rows' sums of g and of
// g times the normalized x; the scale is in g where it changes along a row, and 1 here.
struct Row {
    Compute mean[ROW_WIDTH], inverse[ROW_WIDTH], scale[ROW_WIDTH], sum[ROW_WIDTH], dot[ROW_WIDTH];
};

// What a thread reads of a pack: x and the gradient.
struct Elements {
    Compute x[VECTOR], g[VECTOR];
};

// x from its mean, which the inverse deviation turns into the normalized x.
__device__ __forceinline__ Compute centered(const Elements& pack, const Row& row, int e) {
    return CENTERED ? pack.x[e] - row.mean[row_of(e)] : pack.x[e];
}

__device__ __forceinline__ Compute normalized(const Elements& pack, const Row& row, int e) {
    return centered(pack, row, e) * row.inverse[row_of(e)];
}

// Sums become what each element needs of them: means, scaled.
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

// gradient() of rows whose factors are multiplied already (Running::conclude).
__device__ __forceinline__ Compute concluded_gradient(const Elements& pack, const Row& row, int e) {
    const int i = row_of(e);
    Compute inner = CENTERED ? row.sum[i] : (Compute)0;
    multiply_add(inner, row.dot[i], centered(pack, row, e));
    multiply_add(inner, row.scale[i], pack.g[e]);
    return inner;
}
