// The producer's loads of a work tile of batched matrix products (hopper_gemm.cu). conv_producer.cuh has the same function for
// convolutions.
//
// Tensor maps: the contiguous axis of the operand first, K or the other one, then the other one, then three batch axes. A matrix that
//              several products of the batch share has a batch coordinate that is divided by p.broadcast_a or p.broadcast_b.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"

// Loads ROWS rows of A, or ROWS columns of B, of one K tile.
template <int ROWS, bool MN_MAJOR>
__device__ __forceinline__ void load_operand(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int row, int k, const int (&batch)[3]
) {
    if constexpr (MN_MAJOR) {
        #pragma unroll
        for (int j = 0; j < ROWS / SLAB_ROWS; ++j)
            tma_load_tile(to + j * SLAB_BYTES, map, barrier, row + j * SLAB_ROWS, k, batch[2], batch[1], batch[0]);
    } else {
        tma_load_tile(to, map, barrier, k, row, batch[2], batch[1], batch[0]);
    }
}

template <class Acquire> __device__ __forceinline__ void load_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    int batch_a[3], batch_b[3], rem = w.group;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        const int extent = (int)p.batch[d], coord = rem % extent;
        rem /= extent;
        batch_a[d] = coord / (int)p.broadcast_a[d];
        batch_b[d] = coord / (int)p.broadcast_b[d];
    }
    #pragma unroll 1
    for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        load_operand<LOADED_ROWS, A_MN_MAJOR>(a, p.im2col_map[0], barrier, w.tile_m * TILE_M, k_tile * TILE_K, batch_a);
        if constexpr (PERMUTE_N)
            tma_load_tile(b, p.dense_map[0], barrier, k_tile * TILE_K, 0, 0, 0, w.tile_n * TILE_N / (4 * VEC_N));
        else load_operand<TILE_N, B_MN_MAJOR>(b, p.dense_map[0], barrier, w.tile_n * TILE_N, k_tile * TILE_K, batch_b);
    }
}
