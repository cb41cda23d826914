// GELU, Swish and their gradients in fp32, by the approximate exponential and reciprocal instructions. They need a third of the
// instructions of erfc, exp and division, which shortens GEMM epilogues. Errors are below 8 * 2^-24 of x (of dy). In the tails,
// for x below -8, results have 16 correct bits. A result is 0 where the factor of x is 0, also at -inf. NaN propagates.

__device__ __forceinline__ float approx_rcp(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return 1.0f / x;
#endif
}

__device__ __forceinline__ float clamp_nan(float x, float lower, float upper) {  // NaN propagates
#ifdef __CUDA_ARCH__
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(lower));
    if (upper < INFINITY) asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(upper));
    return x;
#else
    return x < lower ? lower : x > upper ? upper : x;
#endif
}

// Phi(x), and exp(-x^2 / 2) in `gaussian`. The tail of the normal distribution at a = |x| is the Gaussian times a polynomial of
// 1 / (1 + 0.28 a), with a relative error of 6e-8 up to a = 14.6; beyond it, the tail is 0 in fp32.
__device__ __forceinline__ float normal_cdf(float x, float& gaussian) {
    const float a = fminf(fabsf(x), 15.0f), t = approx_rcp(fmaf(0.28f, a, 1.0f));
    float series = 0.02310600393891643f;
    series = fmaf(series, t, -0.08491155211089525f);
    series = fmaf(series, t, 0.07301139810292755f);
    series = fmaf(series, t, 0.017100201662686994f);
    series = fmaf(series, t, 0.05587941734978527f);
    series = fmaf(series, t, 0.0909482816742635f);
    series = fmaf(series, t, 0.10122330260882362f);
    series = fmaf(series, t, 0.11195323612291438f);
    series = fmaf(series, t, 0.11168973870378633f);
    gaussian = approx_exp2(a * a * -0.72134752044f);
    const float tail = gaussian * (series * t);
    return x < 0.0f ? tail : 1.0f - tail;
}

// x Phi(x).
__device__ __forceinline__ float geluf(float x) {
    float gaussian;
    const float cdf = normal_cdf(x, gaussian);
    return __fmul_rn(clamp_nan(x, -15.0f, INFINITY), cdf);
}
__device__ __forceinline__ double gelu(double x) {
    const double cdf = 0.5 * erfc(-0.7071067811865476 * x);
    return cdf == 0.0 ? 0.0 : x * cdf;
}

// The derivative of GELU.
__device__ __forceinline__ float geluslopef(float x) {
    float gaussian;
    const float cdf = normal_cdf(x, gaussian);
    return fmaf(clamp_nan(x, -15.0f, 15.0f), 0.3989422804014327f * gaussian, cdf);
}
__device__ __forceinline__ double geluslope(double x) {
    const double density = 0.3989422804014327 * exp(-0.5 * x * x);
    return 0.5 * erfc(-0.7071067811865476 * x) + (density == 0.0 ? 0.0 : x * density);
}

// x / (1 + exp(-z)).
__device__ __forceinline__ float gatedf(float x, float z) {
    const float gate = approx_rcp(1.0f + approx_exp2(-1.44269504089f * z));
    return gate == 0.0f ? 0.0f : x * gate;
}
__device__ __forceinline__ double gated(double x, double z) {
    const double gate = 1.0 / (1.0 + exp(-z));
    return gate == 0.0 ? 0.0 : x * gate;
}

// s(z) + x s(z) s(-z), where s is the sigmoid: the derivative of t s(z(t)) with x = t z'(t).
__device__ __forceinline__ float gateslopef(float x, float z) {
    const float power = approx_exp2(-1.44269504089f * fabsf(z)), large = approx_rcp(1.0f + power);
    const float small = power * large, slope = small * large;
    return (z < 0.0f ? small : large) + (slope == 0.0f ? 0.0f : x * slope);
}
__device__ __forceinline__ double gateslope(double x, double z) {
    const double rising = 1.0 / (1.0 + exp(-z)), slope = rising * (1.0 / (1.0 + exp(z)));
    return rising + (slope == 0.0 ? 0.0 : x * slope);
}
