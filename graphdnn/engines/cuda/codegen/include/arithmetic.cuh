// Multiply-adds for every compute type. Integer sums wrap: they are computed unsigned, where C++ defines overflow.

__device__ __forceinline__ void multiply_add(float& sum, float a, float b) { sum = fmaf(a, b, sum); }
__device__ __forceinline__ void multiply_add(double& sum, double a, double b) { sum = fma(a, b, sum); }
__device__ __forceinline__ void multiply_add(int& sum, int a, int b) {
    sum = (int)((unsigned int)sum + (unsigned int)a * (unsigned int)b);
}
__device__ __forceinline__ void multiply_add(long long& sum, int a, int b) { sum += (long long)a * b; }
__device__ __forceinline__ void multiply_add(long long& sum, long long a, long long b) {
    sum = (long long)((unsigned long long)sum + (unsigned long long)a * (unsigned long long)b);
}

__device__ __forceinline__ float wrapping_sum(float a, float b) { return a + b; }
__device__ __forceinline__ double wrapping_sum(double a, double b) { return a + b; }
__device__ __forceinline__ int wrapping_sum(int a, int b) { return (int)((unsigned int)a + (unsigned int)b); }
__device__ __forceinline__ long long wrapping_sum(long long a, long long b) {
    return (long long)((unsigned long long)a + (unsigned long long)b);
}

// ReLU with bounds. Below `lower` the function continues with `slope`, or is constant if the slope is 0. NaN propagates. With
// slope 0 each bound takes one instruction.
__device__ __forceinline__ double rectified(double x, double lower, double upper, double slope) {
    return x < lower ? (slope == 0.0 ? lower : lower + slope * (x - lower)) : x > upper ? upper : x;
}
__device__ __forceinline__ float rectifiedf(float x, float lower, float upper, float slope) {
#ifdef __CUDA_ARCH__
    if (slope == 0.0f && lower <= upper) {
        // The lower bound comes last: max with 0 fuses with the conversion to 16 bits.
        if (upper < INFINITY) asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(upper));
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(lower));
        return x;
    }
#endif
    return x < lower ? (slope == 0.0f ? lower : lower + slope * (x - lower)) : x > upper ? upper : x;
}
