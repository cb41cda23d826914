// The stages of one piece of a stack of matrix products: LINES rows of a or columns of b, along k or across it.
//
// Axes of a map: k and the line, whichever the operand's elements follow each other along first, then three batch axes. A
// matrix that serves several products of the stack has a coordinate that changes more slowly.
template <int LINES, bool ACROSS>
__device__ __forceinline__ void copy_lines(
    shared_t to, const TensorMap& map, shared_t barrier, int line, int k, const int (&batch)[3]
) {
    if constexpr (ACROSS) {
        #pragma unroll
        for (int j = 0; j < LINES / PANEL; ++j)
            copy_box(to + j * PANEL_BYTES, map, barrier, line + j * PANEL, k, batch[2], batch[1], batch[0]);
    } else {
        copy_box(to, map, barrier, k, line, batch[2], batch[1], batch[0]);
    }
}

template <class Slot> __device__ __forceinline__ void fill(const Params& p, const Work& w, Slot slot) {
    int of_a[3], of_b[3], rest = w.group;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        const int size = (int)p.batch[d], at = rest % size;
        rest /= size;
        of_a[d] = at / (int)p.shared_a[d];
        of_b[d] = at / (int)p.shared_b[d];
    }
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        shared_t a, b, barrier;
        slot(a, b, barrier);
        copy_lines<FILLED, ACROSS_A>(a, p.gathered[0], barrier, w.tile_m * BM, step * BK, of_a);
        if constexpr (PERMUTED)
            copy_box(b, p.plain[0], barrier, step * BK, 0, 0, 0, w.tile_n * BN / (4 * NEIGHBOURS));
        else copy_lines<BN, ACROSS_B>(b, p.plain[0], barrier, w.tile_n * BN, step * BK, of_b);
    }
}
