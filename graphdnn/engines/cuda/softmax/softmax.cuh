extern __shared__ uint4 shared_packs[];

// What no element is below.
template <class T> __device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -(T)INFINITY;
    else return (T)(1ull << (sizeof(T) * 8 - 1));
}

// a / b for the many a of a row, from 0 to 1, and a b of 1 or more: b's reciprocal is computed once, and one step of
// Newton's method takes its rounding out of the quotient.
__device__ __forceinline__ float quotient(float a, float b, float reciprocal) {
    const float q = a * reciprocal;
    return fmaf(fmaf(-q, b, a), reciprocal, q);
}

// exp(x) for x up to 0 where results have no more than 11 bits: an error of 2^-22 at -1, of 2^-18 at -16.
__device__ __forceinline__ float quick_exp(float x) {
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
    return power;
#else
    return exp2f(x * 1.44269504f);
#endif
}
