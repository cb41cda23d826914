// Statistics of rows: means first, then squared deviations from the means.

constexpr int SUMS = 1;
constexpr bool HAS_SECOND_PASS = true;
constexpr bool SCALES_VARY = false;
static_assert(CENTERED, "deviations are those from a mean");

__device__ __forceinline__ Elements widened(const Stored& vec) {
    Elements elements;
    unpack_words(vec.x, elements.x);
    return elements;
}

__device__ __forceinline__ void add(const Elements& vec, const Row&, Compute (&sum)[1][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) sum[0][e] += vec.x[e];
}

__device__ __forceinline__ void add_second_pass(const Elements& vec, const Row& row, Compute (&sum)[1][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        const Compute deviation = vec.x[e] - row.mean[e];
        multiply_add(sum[0][e], deviation, deviation);
    }
}

__device__ __forceinline__ void set_channel_factors(const Channel& channel, Row& row, int e) {
    row.scale[e] = channel.scale[0];
    row.bias[e] = channel.bias[0];
}

// The mean and the inverse standard deviation.
__device__ __forceinline__ Vec<Compute, 2> factors_of(const Params& p, Compute sum, Compute squares) {
    return {sum / (Compute)p.elements, inverse_deviation(squares / (Compute)p.elements, epsilon(p))};
}

__device__ __forceinline__ void set_row_factors(Compute mean, Compute inverse, Row& row, int e) {
    row.mean[e] = mean;
    row.inverse[e] = inverse * row.scale[e];
}

__device__ __forceinline__ void store_row(const Params& p, const int (&at)[ROW_RANK], Compute sum, Compute squares) {
    const Compute variance = squares / (Compute)p.elements;
    finish_row(p, at, sum / (Compute)p.elements, variance, inverse_deviation(variance, epsilon(p)));
}
