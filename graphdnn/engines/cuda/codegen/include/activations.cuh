// GELU, Swish and their gradients in fp32, by the approximate exponential and reciprocal instructions. They take a third of the
// instructions of erfc, exp and division, and GEMM epilogues wait for them. Errors are below 8 * 2^-24 of x (of dy). In the
// tails, below -8, results have 16 correct bits. A result is 0 where the factor of x is 0, also at -inf. NaN propagates.

__device__ __forceinline__ float near_reciprocal(float x) {
#ifdef __CUDA_ARCH__
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return 1.0f / x;
#endif
}

__device__ __forceinline__ float bounded(float x, float lower, float upper) {  // NaN stays
#ifdef __CUDA_ARCH__
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(lower));
    if (upper < INFINITY) asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(upper));
    return x;
#else
    return x < lower ? lower : x > upper ? upper : x;
#endif
}

// Phi(x), and exp(-x^2 / 2) in ``bell``. The tail of the normal distribution at a = |x| is the bell times a polynomial of
// 1 / (1 + 0.28 a), within 6e-8 of it up to 14.6; beyond, it is 0 in fp32.
__device__ __forceinline__ float normal_part(float x, float& bell) {
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
    bell = near_exp2(a * a * -0.72134752044f);
    const float tail = bell * (series * t);
    return x < 0.0f ? tail : 1.0f - tail;
}

// x Phi(x).
__device__ __forceinline__ float geluf(float x) {
    float bell;
    const float part = normal_part(x, bell);
    return __fmul_rn(bounded(x, -15.0f, INFINITY), part);
}
__device__ __forceinline__ double gelu(double x) {
    const double part = 0.5 * erfc(-0.7071067811865476 * x);
    return part == 0.0 ? 0.0 : x * part;
}

// Its derivative.
__device__ __forceinline__ float geluslopef(float x) {
    float bell;
    const float part = normal_part(x, bell);
    return fmaf(bounded(x, -15.0f, 15.0f), 0.3989422804014327f * bell, part);
}
__device__ __forceinline__ double geluslope(double x) {
    const double density = 0.3989422804014327 * exp(-0.5 * x * x);
    return 0.5 * erfc(-0.7071067811865476 * x) + (density == 0.0 ? 0.0 : x * density);
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

// With s the sigmoid: s(z) + x s(z) s(-z), the derivative of what is gated by z, where x is z's derivative times that.
__device__ __forceinline__ float gateslopef(float x, float z) {
    const float power = near_exp2(-1.44269504089f * fabsf(z)), large = near_reciprocal(1.0f + power);
    const float small = power * large, slope = small * large;
    return (z < 0.0f ? small : large) + (slope == 0.0f ? 0.0f : x * slope);
}
__device__ __forceinline__ double gateslope(double x, double z) {
    const double rising = 1.0 / (1.0 + exp(-z)), slope = rising * (1.0 / (1.0 + exp(z)));
    return rising + (slope == 0.0 ? 0.0 : x * slope);
}
