// The sum and the sum of squares of x.
__device__ __forceinline__ void accumulate(Compute (&acc)[PARTS][WIDTH], const Compute (&value)[ROWS][WIDTH]) {
    #pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
        acc[0][e] += value[0][e];
        multiply_add(acc[1][e], value[0][e], value[0][e]);
    }
}
