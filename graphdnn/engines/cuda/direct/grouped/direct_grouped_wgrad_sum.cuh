// The second kernel of the filter gradient of narrow groups: what blocks of the first have left is added in their order.

// Four numbers of a window a thread; a block's warps share the parts: each adds every SLICES-th, in order.
extern "C" __global__ void __launch_bounds__(32 * SLICES) direct_grouped_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ Vec<float, 4> shared[SLICES][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int at = ((int)blockIdx.x * 32 + lane) * 4, all = (int)p.channels * WINDOW;
    pdl_trigger();
    pdl_wait();
    Vec<float, 4> sum{};
    if (at < all) {
        const float* from = p.partial + slice * (long long)all + at;
        #pragma unroll 4
        for (int part = slice; part < (int)p.parts; part += SLICES, from += SLICES * (long long)all) {
            const Vec<float, 4> one = load_vec<4>(from);
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum.at[e] += one.at[e];
        }
    }
    if constexpr (SLICES > 1) {
        shared[slice][lane] = sum;
        __syncthreads();
        if (slice != 0) return;
        #pragma unroll
        for (int other = 1; other < SLICES; ++other)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum.at[e] += shared[other][lane].at[e];
    }
    if (at >= all) return;
    const int k = at / WINDOW, rest = at - k * WINDOW, tap = rest / IN, c = rest - tap * IN, r = tap / S, s = tap - r * S;
    #pragma unroll
    for (int e = 0; e < 4; e += WIDTH) {
        const int place[6] = {k / OUT, k % OUT, c + e, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
        float acc[WIDTH];
        #pragma unroll
        for (int i = 0; i < WIDTH; ++i) acc[i] = sum.at[e + i];
        epilogue(p, place, acc);
    }
}
