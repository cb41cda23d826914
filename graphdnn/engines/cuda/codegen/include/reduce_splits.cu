// Sum of the partial results of a split, in their order, and the epilogue.
extern "C" __global__ void __launch_bounds__(SUM_THREADS) reduce_splits(const __grid_constant__ Params p) {
    constexpr int A_KIND = A_IS_PLAIN ? CHANNEL : PIXEL;
    constexpr int B_KIND = A_IS_PLAIN ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;
    const long long all = p.results[residue()], columns = p.columns[residue()], each = p.rows[residue()] * columns;
    const Accum* partial = p.partial + p.partial_start[residue()];
    for (long long i = ((long long)blockIdx.x * SUM_THREADS + threadIdx.x) * WIDTH; i < all;
         i += (long long)gridDim.x * SUM_THREADS * WIDTH) {
        Accum acc[WIDTH];
        for (int e = 0; e < WIDTH; ++e) acc[e] = (Accum)0;
        #pragma unroll 8
        for (int s = 0; s < (int)p.splits; ++s) {
            const Vec<Accum, WIDTH> one = load_vec<WIDTH>(partial + s * all + i);
            for (int e = 0; e < WIDTH; ++e) acc[e] = wrapping_sum(acc[e], one[e]);
        }
        const long long group = i / each, rest = i - group * each;
        const long long row = rest / columns;
        int at[6] = {0, 0, 0, 0, 0, 0};
        at[K_KIND == PIXEL ? 0 : 1] = (int)group;
        output_coordinates<A_KIND>(p, output_digits<A_KIND>(row, p), at);
        output_coordinates<B_KIND>(p, output_digits<B_KIND>(rest - row * columns, p), at);
        epilogue(p, at, acc);
    }
}
