// Sums of the gradient over planes, and of its product with the normalized x.

constexpr int SUMS = 2;
constexpr bool SWEEPS = false;

__device__ __forceinline__ void learn_channel(const Channel& channel, Row& row, int e) {
    row.mean[e] = channel.mean[0];
    row.inverse[e] = channel.inverse[0];
    row.scale[e] = channel.scale[0];
}

__device__ __forceinline__ void add(const Elements& pack, const Row& row, Compute (&sum)[2][VECTOR]) {
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
        sum[0][e] += pack.g[e];
        multiply_add(sum[1][e], pack.g[e], normalized(pack, row, e));
    }
}

__device__ __forceinline__ void learn(const Params& p, Compute sum, Compute dot, Row& row, int e) {
    const Compute scale = row.scale[e] * row.inverse[e];
    row.sum[e] = -scale * sum / (Compute)p.elements;
    row.dot[e] = -scale * (dot / (Compute)p.elements) * row.inverse[e];
    row.scale[e] = scale;
}

__device__ __forceinline__ void store_row(const Params& p, const int (&at)[1], Compute sum, Compute dot) {
    finish_row(p, at, sum, dot);
}

// Nothing is summed a second time.
__device__ __forceinline__ void learn_first(const Params&, Compute, Row&, int) {}
__device__ __forceinline__ void add_again(const Elements&, const Row&, Compute (&)[1][VECTOR]) {}
