// x^y of a vector. Where exponents are small, the approximate log2 and exp2 instructions compute it: |y| <= 2 and |y log2 x| < 2
// keep the error below 6 * 2^-23 of the result, by the bounds of the PTX manual (2^-22 each); an H200 stays below 3 * 2^-23.
// Other elements use powf, whatever their neighbours are. One test for the whole vector keeps its elements independent.

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

// The quick form holds where this bit is 0: it is set in a float from 2 on, in infinities and in NaN.
constexpr unsigned int DOUBT = 0x40000000u;

__device__ __forceinline__ unsigned int doubts(float y, float exponent) {
    return __float_as_uint(exponent) | (fabsf(y) <= 2.0f ? 0u : DOUBT);
}

// Adds the elements' bits to ``doubt``.
template <int V> __device__ __forceinline__ void quick_power(
    const float (&x)[V], const float (&y)[V], float (&result)[V], unsigned int& doubt) {
    #pragma unroll
    for (int e = 0; e < V; ++e) {
        const float exponent = y[e] * near_log2(x[e]);
        result[e] = near_exp2(exponent);
        doubt |= doubts(y[e], exponent);
    }
}

template <int V> __device__ __forceinline__ void power(const float (&x)[V], const float (&y)[V], float (&result)[V]) {
    unsigned int doubt = 0;
    quick_power(x, y, result, doubt);
    if (!(doubt & DOUBT)) return;
    #pragma unroll 1
    for (int k = 0; k < V; ++k) {  // one copy of powf, elements found without an index: they are in registers
        float base = x[0], by = y[0], power = result[0];
        #pragma unroll
        for (int e = 1; e < V; ++e)
            if (e == k) base = x[e], by = y[e], power = result[e];
        if (doubts(by, by * near_log2(base)) & DOUBT) power = powf(base, by);
        #pragma unroll
        for (int e = 0; e < V; ++e)
            if (e == k) result[e] = power;
    }
}
