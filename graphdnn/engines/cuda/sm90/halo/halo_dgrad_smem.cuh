// Shared memory of hopper_halo_dgrad.cu: stages of dy, and the filter tiles that stay.
//
// Layout:     [consumer][stage]: LOADED_PIXELS rows of 128 bytes, K-major, rounded up to whole 1024 bytes, the period of the swizzle. Then
//             the filters, [channel block][tap]: TILE_N channels by 128 bytes of K, or 64 rows of K by TILE_N channels where
//             FILTER_MN_MAJOR. Then the barriers.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);
constexpr int LOAD_BYTES = LOADED_PIXELS * SWIZZLE_BYTES, STAGE_BYTES = (LOAD_BYTES + 1023) / 1024 * 1024;
constexpr int FILTER_SWIZZLE_BYTES = FILTER_MN_MAJOR ? TILE_N * (int)sizeof(Element) : SWIZZLE_BYTES, FILTER_ROWS = FILTER_MN_MAJOR ? SLAB_ROWS : TILE_N;
constexpr int FILTER_BYTES = FILTER_ROWS * FILTER_SWIZZLE_BYTES;  // of one tap in one channel block
constexpr int FILTER_DESC_STEP_K = FILTER_MN_MAJOR ? 16 * FILTER_SWIZZLE_BYTES >> 4 : 32 >> 4;
static_assert(TILE_M == 64 * CONSUMER_WARPGROUPS && !(WGRAD || SWAP_AB), "each consumer warpgroup has 64 rows");
static_assert(FILTER_SWIZZLE_BYTES == 128 || FILTER_SWIZZLE_BYTES == 64, "the swizzle spans of the descriptor below");

__device__ __forceinline__ smem_desc_t filter_desc(smem_addr_t address) {
    const smem_desc_t leading_offset = FILTER_MN_MAJOR ? FILTER_BYTES >> 4 : 1, stride_offset = (8 * FILTER_SWIZZLE_BYTES) >> 4;
    const smem_desc_t swizzle_mode = FILTER_SWIZZLE_BYTES == 128 ? 1 : 2;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | leading_offset << 16 | stride_offset << 32 | swizzle_mode << 62;
}

// The pipeline of one consumer; `memory` is a generic pointer to its first stage.
struct ConsumerPipeline { smem_addr_t stages, full, empty; const unsigned char* memory; };
