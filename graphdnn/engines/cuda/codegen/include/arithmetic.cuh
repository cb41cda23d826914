// Multiply-adds of every arithmetic type. Integers wrap: the sums are unsigned, where C++ defines that.

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

// Values below `lower` continue along a slope, if it is not 0; NaN is handed on. The usual clips are one instruction each.
__device__ __forceinline__ double rectified(double x, double lower, double upper, double slope) {
    return x < lower ? (slope == 0.0 ? lower : lower + slope * (x - lower)) : x > upper ? upper : x;
}
__device__ __forceinline__ float rectifiedf(float x, float lower, float upper, float slope) {
#ifdef __CUDA_ARCH__
    if (slope == 0.0f && lower <= upper) {
        // The lower one last: for 0 it becomes a part of the conversion to 16 bits.
        if (upper < INFINITY) asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(upper));
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(lower));
        return x;
    }
#endif
    return x < lower ? (slope == 0.0f ? lower : lower + slope * (x - lower)) : x > upper ? upper : x;
}
