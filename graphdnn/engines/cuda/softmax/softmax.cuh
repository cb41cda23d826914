extern __shared__ uint4 smem_vecs[];

// The least value of a type.
template <class T> __device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -(T)INFINITY;
    else return (T)(1ull << (sizeof(T) * 8 - 1));
}

// a / b for many values of a, from 0 to 1, with one b of 1 or more: the reciprocal of b is computed once, and one Newton step
// removes its rounding error from the quotient.
__device__ __forceinline__ float quotient(float a, float b, float reciprocal) {
    const float q = a * reciprocal;
    return fmaf(fmaf(-q, b, a), reciprocal, q);
}

// exp(x) for x up to 0, for results of at most 11 bits: the error is 2^-22 at -1, and 2^-18 at -16.
__device__ __forceinline__ float fast_exp(float x) {
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
    return power;
#else
    return exp2f(x * 1.44269504f);
#endif
}
