// A channel's statistics from its sums. The difference cancels, so it is formed in double; what is below 0 by
// rounding is 0, and NaN stays.
__device__ __forceinline__ double variance_of(double sum, double squares, double count) {
    const double mean = sum / count, variance = squares / count - mean * mean;
    return variance < 0.0 ? 0.0 : variance;
}

// The running variance is the unbiased one; a single element has none.
__device__ __forceinline__ double unbiased(double variance, double count) {
    return variance * (count / (count > 2.0 ? count - 1.0 : 1.0));
}

__device__ __forceinline__ double averaged(double previous, double current, double factor) {
    return factor == 1.0 ? current : (1.0 - factor) * previous + factor * current;  // with 1 whatever was there before
}

__device__ __forceinline__ double inverse_deviation(double variance, double epsilon) {
    return 1.0 / sqrt(variance + epsilon);
}
