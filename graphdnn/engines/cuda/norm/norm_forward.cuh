// The factors of a thread's rows. The generated functions set the fields that the operation has.
struct Row {
    Compute mean[ROWS_PER_THREAD], inverse[ROWS_PER_THREAD], scale[ROWS_PER_THREAD], bias[ROWS_PER_THREAD];
};

// The previous running averages of a row.
struct Before {
    Compute mean[1], var[1];
};

// One vector of x.
struct Elements {
    Compute x[VEC_WIDTH];
};

__device__ __forceinline__ float inverse_deviation(float variance, float epsilon) {
    return 1.0f / sqrtf(variance + epsilon);
}
__device__ __forceinline__ double inverse_deviation(double variance, double epsilon) {
    return 1.0 / sqrt(variance + epsilon);
}

// Adds the elements of vectors to the sums of their rows.
template <int N> __device__ __forceinline__ void add_to_rows(const Elements (&vec)[N], Compute (&sum)[ROWS_PER_THREAD]) {
    #pragma unroll
    for (int s = 0; s < N; ++s)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) sum[row_of(e)] += vec[s].x[e];
}

// (1 - f) * previous + f * current, with factors rounded to the compute type. A factor of 1 ignores the previous value.
__device__ __forceinline__ Compute averaged(Compute previous, Compute current, double factor) {
    return factor == 1.0 ? current : (Compute)(1.0 - factor) * previous + (Compute)factor * current;
}

// The unbiased variance. A single element has none, so its biased variance stays.
__device__ __forceinline__ Compute unbiased(Compute variance, long long elements) {
    return (Compute)((double)elements / (double)(elements > 1 ? elements - 1 : 1)) * variance;
}
