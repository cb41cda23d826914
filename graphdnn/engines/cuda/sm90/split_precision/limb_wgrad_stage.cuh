// A stage of a split-precision filter gradient: STAGE_K pixels of all LIMBS of both operands, in slabs of 64 channels.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"

constexpr int STAGE_SLAB_BYTES = STAGE_K * SWIZZLE_BYTES;  // 64 channels of STAGE_K pixels
constexpr int A_LIMB_BYTES = TILE_M / 64 * STAGE_SLAB_BYTES, B_LIMB_BYTES = TILE_N / 64 * STAGE_SLAB_BYTES;
constexpr int A_BYTES = LIMBS * A_LIMB_BYTES, STAGE_BYTES = A_BYTES + LIMBS * B_LIMB_BYTES;
constexpr int PROMOTION_PERIOD = PROMOTION_INTERVAL > 0 ? PROMOTION_INTERVAL : 1;  // a divisor: never 0
static_assert(WGRAD && !(SWAP_AB || FILTER_MN_MAJOR || PERMUTE_N), "a filter gradient reads no filter");
static_assert(TILE_M == 64 * CONSUMER_WARPGROUPS && TILE_N % SLAB_ROWS == 0 && STAGE_K % 16 == 0, "slabs and MMA K steps are whole");

// The descriptor of an MN-major operand like make_desc<true>, for slabs of STAGE_K pixels.
__device__ __forceinline__ smem_desc_t make_slab_desc(smem_addr_t address) {
    const smem_desc_t slab_stride = STAGE_SLAB_BYTES >> 4, eight_row_stride = (8 * SWIZZLE_BYTES) >> 4, swizzle_128b = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | slab_stride << 16 | eight_row_stride << 32 | swizzle_128b << 62;
}
// MMA K step `k` (16 pixels) of a limb; a limb occupies BYTES.
template <int BYTES> __device__ __forceinline__ smem_desc_t limb_desc(smem_desc_t first, int limb, int k) {
    return first + (limb * BYTES >> 4) + k * DESC_STEP_K<true>;
}
