// reduce_splits computes the split-K reduction of an implicit GEMM: the sum of the partial sums, in the order of the splits, and
// the epilogue.
//
// Tile:    VEC_WIDTH contiguous results for a thread.
// Memory:  partial sums are [residue][split][group][row][column]; residues are counted by the grid's z.
// Threads: threads are independent; the grid strides over all results of a residue.
//
// Required constants (from the generator), besides those of implicit_coordinates.cuh:
//   REDUCE_THREADS: threads of a CTA; VEC_WIDTH: elements of a vector store.
//   A_IS_DENSE: whether A is the dense operand; K_KIND: what k counts.

#include "implicit_coordinates.cuh"

extern "C" __global__ void __launch_bounds__(REDUCE_THREADS) reduce_splits(const __grid_constant__ Params p) {
    constexpr int A_KIND = A_IS_DENSE ? CHANNEL : PIXEL;
    constexpr int B_KIND = A_IS_DENSE ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;
    const long long all = p.results[residue()], columns = p.columns[residue()], results_per_group = p.rows[residue()] * columns;
    const Accum* partial = p.partial + p.partial_start[residue()];
    for (long long i = ((long long)blockIdx.x * REDUCE_THREADS + threadIdx.x) * VEC_WIDTH; i < all;
         i += (long long)gridDim.x * REDUCE_THREADS * VEC_WIDTH) {
        Accum acc[VEC_WIDTH];
        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = (Accum)0;
        #pragma unroll 8
        for (int s = 0; s < (int)p.splits; ++s) {
            const Vec<Accum, VEC_WIDTH> partial_vec = load_vec<VEC_WIDTH>(partial + s * all + i);
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = wrapping_sum(acc[e], partial_vec[e]);
        }
        const long long group = i / results_per_group, rem = i - group * results_per_group;
        const long long row = rem / columns;
        int at[6] = {0, 0, 0, 0, 0, 0};
        at[K_KIND == PIXEL ? 0 : 1] = (int)group;
        output_coordinates<A_KIND>(p, output_digits<A_KIND>(row, p), at);
        output_coordinates<B_KIND>(p, output_digits<B_KIND>(rem - row * columns, p), at);
        epilogue(p, at, acc);
    }
}
