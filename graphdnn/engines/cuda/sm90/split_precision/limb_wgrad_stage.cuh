// A stage of a filter gradient: STAGE_K pixels of PLANES of both operands, in panels of 64 channels.

constexpr int DEEP_BYTES = STAGE_K * SWIZZLE_BYTES;  // of a panel
constexpr int A_PLANE = TILE_M / 64 * DEEP_BYTES, B_PLANE = TILE_N / 64 * DEEP_BYTES;
constexpr int A_BYTES = PLANES * A_PLANE, STAGE_BYTES = A_BYTES + PLANES * B_PLANE;
constexpr int UNIT = PROMOTION_INTERVAL > 0 ? PROMOTION_INTERVAL : 1;  // stages
static_assert(WGRAD && !(SWAP_AB || FILTER_MN_MAJOR || PERMUTE_N), "a filter gradient reads no filter");
static_assert(TILE_M == 64 * CONSUMER_WARPGROUPS && TILE_N % SLAB_ROWS == 0 && STAGE_K % 16 == 0, "whole panels");

// As make_desc<true>, of panels of STAGE_K steps of k.
__device__ __forceinline__ smem_desc_t panels_at(smem_addr_t address) {
    const smem_desc_t between_panels = DEEP_BYTES >> 4, between_eights = (8 * SWIZZLE_BYTES) >> 4, swizzled = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}
// Sixteen pixels of a plane of BYTES.
template <int BYTES> __device__ __forceinline__ smem_desc_t plane_of(smem_desc_t first, int plane, int k) {
    return first + (plane * BYTES >> 4) + k * DESC_STEP_K<true>;
}
