// Sums of the gradient over rows, and of its product with the normalized x.

constexpr int SUMS = 2;
constexpr bool HAS_SECOND_PASS = false;
// In group norm each element of a row has its own scale. The sums of a row contain the scaled gradient. The contributions to
// the gradients of scale and bias are stored by image and CTA, and another launch adds them.
constexpr bool SCALES_VARY = ROW_RANK == 3;

__device__ __forceinline__ void set_channel_factors(const Channel& channel, Row& row, int e) {
    row.mean[e] = channel.mean[0];
    row.inverse[e] = channel.inverse[0];
    row.scale[e] = channel.scale[0];
}

__device__ __forceinline__ void add(const Elements& vec, const Row& row, Compute (&sum)[2][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        sum[0][e] += vec.g[e];
        multiply_add(sum[1][e], vec.g[e], normalized(vec, row, e));
    }
}

// The means over a row.
__device__ __forceinline__ Vec<Compute, 2> factors_of(const Params& p, Compute sum, Compute dot) {
    return {sum / (Compute)p.elements, dot / (Compute)p.elements};
}

__device__ __forceinline__ void set_row_factors(Compute sum, Compute dot, Row& row, int e) {
    const Compute scale = row.scale[e] * row.inverse[e], of_sums = SCALES_VARY ? row.inverse[e] : scale;
    row.sum[e] = -of_sums * sum;
    row.dot[e] = -of_sums * dot * row.inverse[e];
    row.scale[e] = scale;
}

__device__ __forceinline__ void store_row(const Params& p, const int (&at)[ROW_RANK], Compute sum, Compute dot) {
    finish_row(p, at, sum, dot);
}

// The backward direction has no second pass.
__device__ __forceinline__ void add_second_pass(const Elements&, const Row&, Compute (&)[1][VEC_WIDTH]) {}
