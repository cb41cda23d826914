// GELU and Swish of floats by the hardware's exponential and reciprocal: a third of the instructions that the library's
// erfc, exp and division take, which ends of matrix products wait for. Errors are below 8 * 2^-24 of x; in the tails,
// below -8, results keep 16 bits. Both are 0 where the factor of x is, also at -inf, and hand NaN on.

__device__ __forceinline__ float near_reciprocal(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return 1.0f / x;
#endif
}

// x Phi(x). The tail of the normal distribution at a = |x| is exp(-a^2 / 2) times a polynomial of 1 / (1 + 0.28 a),
// within 6e-8 of it up to 14.6; beyond, it is 0 in fp32.
__device__ __forceinline__ float geluf(float x) {
    const float a = fminf(fabsf(x), 15.0f), t = near_reciprocal(fmaf(0.28f, a, 1.0f));
    float series = 0.02310600393891643f;
    series = fmaf(series, t, -0.08491155211089525f);
    series = fmaf(series, t, 0.07301139810292755f);
    series = fmaf(series, t, 0.017100201662686994f);
    series = fmaf(series, t, 0.05587941734978527f);
    series = fmaf(series, t, 0.0909482816742635f);
    series = fmaf(series, t, 0.10122330260882362f);
    series = fmaf(series, t, 0.11195323612291438f);
    series = fmaf(series, t, 0.11168973870378633f);
    const float tail = near_exp2(a * a * -0.72134752044f) * (series * t);
    const float least = -15.0f;
#ifdef __CUDA_ARCH__
    float bounded;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(bounded) : "f"(x), "f"(least));
#else
    const float bounded = x < least ? least : x;
#endif
    return bounded * (x < 0.0f ? tail : 1.0f - tail);
}
__device__ __forceinline__ double gelu(double x) {
    const double factor = 0.5 * erfc(-0.7071067811865476 * x);
    return factor == 0.0 ? 0.0 : x * factor;
}

// x / (1 + exp(-z)).
__device__ __forceinline__ float gatedf(float x, float z) {
    const float gate = near_reciprocal(1.0f + near_exp2(-1.44269504089f * z));
    return gate == 0.0f ? 0.0f : x * gate;
}
__device__ __forceinline__ double gated(double x, double z) {
    const double gate = 1.0 / (1.0 + exp(-z));
    return gate == 0.0 ? 0.0 : x * gate;
}
