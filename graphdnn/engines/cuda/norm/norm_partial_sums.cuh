// Adds the sums of rows, of the gradient and of its product with the normalized x, to the sums for scale and bias.
__device__ __forceinline__ void accumulate(Compute (&acc)[PARTS][VEC_WIDTH], const Compute (&value)[ROWS][VEC_WIDTH]) {
    #pragma unroll
    for (int part = 0; part < PARTS; ++part)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) acc[part][e] += value[part][e];
}
