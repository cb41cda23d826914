// The stages of one piece of a stack of matrix products: LINES rows of a or columns of b, along k or across it.
//
// Axes of a map: k and the line, whichever the operand's elements follow each other along first, then three batch axes. A
// matrix that serves several products of the stack has a coordinate that changes more slowly.
template <int LINES, bool ACROSS>
__device__ __forceinline__ void copy_lines(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int line, int k, const int (&batch)[3]
) {
    if constexpr (ACROSS) {
        #pragma unroll
        for (int j = 0; j < LINES / SLAB_ROWS; ++j)
            tma_load_tile(to + j * SLAB_BYTES, map, barrier, line + j * SLAB_ROWS, k, batch[2], batch[1], batch[0]);
    } else {
        tma_load_tile(to, map, barrier, k, line, batch[2], batch[1], batch[0]);
    }
}

template <class Acquire> __device__ __forceinline__ void load_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
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
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        copy_lines<LOADED_ROWS, A_MN_MAJOR>(a, p.im2col_map[0], barrier, w.tile_m * TILE_M, step * TILE_K, of_a);
        if constexpr (PERMUTE_N)
            tma_load_tile(b, p.dense_map[0], barrier, step * TILE_K, 0, 0, 0, w.tile_n * TILE_N / (4 * VEC_N));
        else copy_lines<TILE_N, B_MN_MAJOR>(b, p.dense_map[0], barrier, w.tile_n * TILE_N, step * TILE_K, of_b);
    }
}
