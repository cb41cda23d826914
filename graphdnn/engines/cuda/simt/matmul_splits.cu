// matmul_splits computes the split-K reduction of matmul.cu: the sum of the partial sums, in the order of the splits, and the
// epilogue.
//
// Tile:    VEC_WIDTH contiguous results for a thread.
// Memory:  partial sums are [split][batch][row][column].
// Threads: threads are independent; the grid strides over all results.
//
// Required constants (from the generator): THREADS: threads of a CTA; VEC_WIDTH: elements of a vector store.
extern "C" __global__ void __launch_bounds__(THREADS) matmul_splits(const __grid_constant__ Params p) {
    const long long all = p.batches * p.rows * p.columns;
    for (long long i = ((long long)blockIdx.x * THREADS + threadIdx.x) * VEC_WIDTH; i < all;
         i += (long long)gridDim.x * THREADS * VEC_WIDTH) {
        Accum acc[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = (Accum)0;
        for (long long s = 0; s < p.splits; ++s)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = wrapping_sum(acc[e], p.partial[s * all + i + e]);
        const long long batch = i / (p.rows * p.columns), rem = i - batch * (p.rows * p.columns);
        const long long row = rem / p.columns;
        int at[RANK];
        batch_coord(batch, p, at);
        store_result(p, at, (int)row, (int)(rem - row * p.columns), acc);
    }
}
