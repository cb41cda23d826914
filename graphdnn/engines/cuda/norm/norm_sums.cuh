// Sums of the gradient and of its product with the normalized x. Rows of value: x, gradient, inverse deviation, mean
// if CENTERED, scale if SCALED.
__device__ __forceinline__ void accumulate(Compute (&acc)[PARTS][VEC_WIDTH], const Compute (&value)[ROWS][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        const Compute deviation = CENTERED ? value[0][e] - value[CENTERED ? 3 : 0][e] : value[0][e];
        const Compute g = SCALED ? value[1][e] * value[ROWS - 1][e] : value[1][e];
        acc[0][e] += g;
        multiply_add(acc[1][e], g, deviation * value[2][e]);
    }
}
