// A stage of a filter gradient: DEEP pixels of PLANES of both operands, in panels of 64 channels.

constexpr int DEEP_BYTES = DEEP * ROW;  // of a panel
constexpr int A_PLANE = BM / 64 * DEEP_BYTES, B_PLANE = BN / 64 * DEEP_BYTES;
constexpr int A_BYTES = PLANES * A_PLANE, STAGE_BYTES = A_BYTES + PLANES * B_PLANE;
constexpr int UNIT = PROMOTED > 0 ? PROMOTED : 1;  // stages
static_assert(WGRAD && !(TURNED || ACROSS_FILTER || PERMUTED), "a filter gradient reads no filter");
static_assert(BM == 64 * CONSUMERS && BN % PANEL == 0 && DEEP % 16 == 0, "whole panels");

// As matrix_at<true>, of panels of DEEP steps of k.
__device__ __forceinline__ matrix_t panels_at(shared_t address) {
    const matrix_t between_panels = DEEP_BYTES >> 4, between_eights = (8 * ROW) >> 4, swizzled = 1;
    return (matrix_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}
// Sixteen pixels of a plane of BYTES.
template <int BYTES> __device__ __forceinline__ matrix_t plane_of(matrix_t first, int plane, int k) {
    return first + (plane * BYTES >> 4) + k * NEXT_K<true>;
}
