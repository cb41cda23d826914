// x^y of a pack. Where exponents are small the hardware's logarithm and exponential do: |y| <= 2 and |y log2 x| <= 2 hold
// the error below 6 * 2^-23 of the result, by the bounds of the PTX manual (2^-22 each). All else is powf's, which an
// element gets or does not get whatever its neighbours are. One question for the pack keeps the chains of its elements
// side by side.

__device__ __forceinline__ float near_log2(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));  // a subnormal number is a 0, the result infinite
    return result;
#else
    return log2f(x);
#endif
}

__device__ __forceinline__ float near_exp2(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return exp2f(x);
#endif
}

// False for NaN: negative x, and infinities that meet zeros.
__device__ __forceinline__ bool is_mild(float y, float exponent) { return (fabsf(y) <= 2.0f) & (fabsf(exponent) <= 2.0f); }

template <int V> __device__ __forceinline__ void power(const float (&x)[V], const float (&y)[V], float (&result)[V]) {
    bool mild = true;
    #pragma unroll
    for (int e = 0; e < V; ++e) {
        const float exponent = y[e] * near_log2(x[e]);
        result[e] = near_exp2(exponent);
        mild &= is_mild(y[e], exponent);
    }
    if (mild) return;
    // One copy of powf: the pack turns.
    float base[V], by[V];
    #pragma unroll
    for (int e = 0; e < V; ++e) base[e] = x[e], by[e] = y[e];
    #pragma unroll 1
    for (int k = 0; k < V; ++k) {
        const float a = base[0], b = by[0];
        const float next = is_mild(b, b * near_log2(a)) ? result[0] : powf(a, b);
        #pragma unroll
        for (int e = 0; e < V - 1; ++e) base[e] = base[e + 1], by[e] = by[e + 1], result[e] = result[e + 1];
        base[V - 1] = a;
        by[V - 1] = b;
        result[V - 1] = next;
    }
}
