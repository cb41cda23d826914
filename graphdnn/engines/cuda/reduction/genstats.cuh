// The sum and the sum of squares of x.
__device__ __forceinline__ void accumulate(Compute (&acc)[PARTS][VEC_WIDTH], const Compute (&value)[ROWS][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        acc[0][e] += value[0][e];
        multiply_add(acc[1][e], value[0][e], value[0][e]);
    }
}
