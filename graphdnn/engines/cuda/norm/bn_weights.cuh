// dbias is the sum of dy, and dscale the sum of dy * (x - mean) * inv_std. Rows of value: x, dy, mean, inv_std.
__device__ __forceinline__ void accumulate(Compute (&acc)[PARTS][VEC_WIDTH], const Compute (&value)[ROWS][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        acc[0][e] += value[1][e];
        multiply_add(acc[1][e], value[1][e], (value[0][e] - value[2][e]) * value[3][e]);
    }
}
