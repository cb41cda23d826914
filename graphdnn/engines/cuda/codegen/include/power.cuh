// x^y of a vector. Where exponents are small, the approximate log2 and exp2 instructions compute it: |y| <= 2 and |y log2 x| < 2
// keep the error below 6 * 2^-23 of the result, by the bounds of the PTX manual (2^-22 each); an H200 stays below 3 * 2^-23.
// The other elements use powf. One test for the whole vector keeps the approximations of its elements independent.

__device__ __forceinline__ float approx_log2(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));  // a subnormal x counts as 0, so the result is infinite
    return result;
#else
    return log2f(x);
#endif
}

__device__ __forceinline__ float approx_exp2(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return exp2f(x);
#endif
}

// The approximation is exact enough where this bit of the exponent y log2 x is 0: the bit is set in floats with a magnitude of 2
// or more, in infinities and in NaN.
constexpr unsigned int NEEDS_POWF = 0x40000000u;

__device__ __forceinline__ unsigned int needs_powf(float y, float exponent) {
    return __float_as_uint(exponent) | (fabsf(y) <= 2.0f ? 0u : NEEDS_POWF);
}

// Approximate the powers, and set NEEDS_POWF in `mask` if any element needs powf.
template <int V> __device__ __forceinline__ void fast_power(
    const float (&x)[V], const float (&y)[V], float (&result)[V], unsigned int& mask) {
    #pragma unroll
    for (int e = 0; e < V; ++e) {
        const float exponent = y[e] * approx_log2(x[e]);
        result[e] = approx_exp2(exponent);
        mask |= needs_powf(y[e], exponent);
    }
}

template <int V> __device__ __forceinline__ void power(const float (&x)[V], const float (&y)[V], float (&result)[V]) {
    unsigned int mask = 0;
    fast_power(x, y, result, mask);
    if (!(mask & NEEDS_POWF)) return;
    #pragma unroll 1
    for (int k = 0; k < V; ++k) {  // one copy of powf; constant indices keep the elements in registers
        float base = x[0], by = y[0], power = result[0];
        #pragma unroll
        for (int e = 1; e < V; ++e)
            if (e == k) base = x[e], by = y[e], power = result[e];
        if (needs_powf(by, by * approx_log2(base)) & NEEDS_POWF) power = powf(base, by);
        #pragma unroll
        for (int e = 0; e < V; ++e)
            if (e == k) result[e] = power;
    }
}
