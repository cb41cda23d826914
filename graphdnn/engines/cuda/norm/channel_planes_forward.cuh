// Statistics of rows: means first, then squared deviations from the means.

constexpr int SUMS = 1;
constexpr bool HAS_SECOND_PASS = true;
constexpr bool SCALES_VARY = false;
static_assert(CENTERED, "deviations are those from a mean");

__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    unpack_words(pack.x, elements.x);
    return elements;
}

__device__ __forceinline__ void add(const Elements& pack, const Row&, Compute (&sum)[1][VECTOR]) {
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) sum[0][e] += pack.x[e];
}

__device__ __forceinline__ void add_second_pass(const Elements& pack, const Row& row, Compute (&sum)[1][VECTOR]) {
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
        const Compute deviation = pack.x[e] - row.mean[e];
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
