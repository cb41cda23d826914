// The variance of a channel, from its sums. The subtraction cancels digits, so it is done in double. Rounding can make the
// difference negative; then the variance is 0. NaN stays.
__device__ __forceinline__ double variance_of(double sum, double squares, double count) {
    const double mean = sum / count, variance = squares / count - mean * mean;
    return variance < 0.0 ? 0.0 : variance;
}

// The unbiased variance for the running average. A single element has none, so its biased variance stays.
__device__ __forceinline__ double unbiased(double variance, double count) {
    return variance * (count / (count > 2.0 ? count - 1.0 : 1.0));
}

__device__ __forceinline__ double averaged(double previous, double current, double factor) {
    // A factor of 1 ignores the previous value, even NaN
    return factor == 1.0 ? current : (1.0 - factor) * previous + factor * current;
}

__device__ __forceinline__ double inverse_deviation(double variance, double epsilon) {
    return 1.0 / sqrt(variance + epsilon);
}
