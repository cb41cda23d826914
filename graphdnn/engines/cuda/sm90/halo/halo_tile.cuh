// Patches of an image as hopper_halo.cu has them in shared memory, and the copies that bring them and filters.

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1), TAPS = TAPS_H * TAPS_W;
constexpr int PITCH = WIDE + (TAPS_W - 1) * STEP_W, LINES = TALL + (TAPS_H - 1) * STEP_H;
constexpr int LANDING = LINES * PITCH * PATCH_ROW;  // bytes of a patch; the stage that holds it is as long or longer
// Filters across k come in whole panels, whose last columns may be the next tile's; 32 columns are rows of half the bytes.
constexpr int RESIDUAL_SLABS = (TILE_CHANNELS + SLAB_ROWS - 1) / SLAB_ROWS;
constexpr int FILTER_ROW = !FILTER_MN_MAJOR ? PATCH_ROW : TILE_CHANNELS < SLAB_ROWS ? TILE_CHANNELS * (int)sizeof(Element) : SWIZZLE_BYTES;
constexpr int FILTER_PANEL = PATCH_ROW / (int)sizeof(Element) * FILTER_ROW;  // bytes, of filters across k
constexpr int B_BYTES = FILTER_MN_MAJOR ? RESIDUAL_SLABS * FILTER_PANEL : TILE_CHANNELS * FILTER_ROW;
[[maybe_unused]] constexpr int NEXT_B = FILTER_MN_MAJOR ? 16 * FILTER_ROW >> 4 : DESC_STEP_K<false>;  // from one instruction's part of k to the next one's
static_assert((PATCH_ROW == 128 || PATCH_ROW == 64) && (FILTER_ROW == 128 || FILTER_ROW == 64), "swizzles that there are");
constexpr smem_desc_t swizzle_of(int row) { return (smem_desc_t)(row == 128 ? 1 : 2) << 62; }
[[maybe_unused]] constexpr int IN_STAGE = RESIDENT ? 1 : CONSUMER_WARPGROUPS * PATCHES, LEAVING = RESIDENT ? 1 : CONSUMER_WARPGROUPS;  // patches, arrivals
constexpr int OF_PATCH = MMA_TILES_M / PATCHES;  // 64s of rows
[[maybe_unused]] constexpr int RINGS = RESIDENT ? CONSUMER_WARPGROUPS : 1;
// Where registers suffice, a patch's first products begin its sums, which nobody clears (as in hopper_gemm.cu).
[[maybe_unused]] constexpr bool CLEAR_BY_SCALE_D = RESIDENT && SPARE_REGISTERS && STAGE_K == 1;
[[maybe_unused]] constexpr int ALL_SUMS = STAGE_K * ACCUMS;  // of a thread, of 64 rows of a product
static_assert(STAGE_K == 1 || (RESIDENT && SPATIAL == 3), "slices side by side");
static_assert(LINEAR || SWAP_AB || (TALL % 8 == 0 && WIDE % 8 == 0 && TALL * WIDE == 64 * OF_PATCH), "whole blocks of 8 x 8");
static_assert(!LINEAR || (TALL - 1) * PITCH + WIDE <= 64 * OF_PATCH, "all lines within the rows");
static_assert(MMA_TILES_M % PATCHES == 0 && (PATCHES == 1 || !RESIDENT), "a consumer's patches");
static_assert(PATCH_BYTES >= LANDING && PATCH_BYTES % 1024 == 0 && TILE_N % 32 == 0, "whole swizzles and blocks of columns");

// Pixels from a patch's first to the first of 64 rows, and the same from a consumer's first patch.
constexpr int first_in_patch(int j) { return LINEAR ? 64 * j : 8 * (j / (WIDE / 8)) * PITCH + j % (WIDE / 8) * 8; }
constexpr int first_of(int j) { return j / OF_PATCH * (PATCH_BYTES / PATCH_ROW) + first_in_patch(j % OF_PATCH); }

__device__ __forceinline__ smem_desc_t pixels_at(smem_addr_t address) {
    const smem_desc_t between_eights = ((LINEAR ? 8 : PITCH) * PATCH_ROW) >> 4, unused = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | unused << 16 | between_eights << 32 | swizzle_of(PATCH_ROW);
}

__device__ __forceinline__ smem_desc_t filters_at(smem_addr_t address) {
    const smem_desc_t between_panels = FILTER_MN_MAJOR ? FILTER_PANEL >> 4 : 1, between_eights = (8 * FILTER_ROW) >> 4;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzle_of(FILTER_ROW);
}

struct Corner { int d, h, w, n; };  // of a patch, in the result; of its first slice

__device__ __forceinline__ Corner corner_of(const Params& p, int patch) {
    Corner found;
    found.w = divmod_inplace(patch, (int)p.patches_across) * WIDE;
    found.h = divmod_inplace(patch, (int)p.patches_down) * TALL;
    found.d = SPATIAL == 3 ? divmod_inplace(patch, (int)p.runs) * (int)p.run : 0;
    found.n = patch;
    return found;
}

// What the epilogue is going to read of a patch from operands as large as the result, asked for line by line, by two warps.
__device__ __forceinline__ void fetch_patch(const Params& p, int patch, int first) {
    const Corner corner = corner_of(p, patch);
    #pragma unroll 1
    for (int i = (int)threadIdx.x % 64; i < TALL * WIDE; i += 64) {
        const int h = corner.h + i / WIDE, w = corner.w + i % WIDE;
        if (patch >= (int)p.patches || h >= (int)p.pixels[1] || w >= (int)p.pixels[2]) continue;
        int at[6] = {corner.n, 0, 0, corner.d, h, w};
        #pragma unroll 1
        for (at[2] = first; at[2] < first + TILE_N && at[2] < (int)p.columns; at[2] += FETCHED) fetch(p, at);
    }
}

__device__ __forceinline__ RowCoords rows_of_patch(const Params& p, int patch, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const bool is_patch = patch < (int)p.patches;
    const Corner corner = corner_of(p, is_patch ? patch : 0);
    RowCoords found;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = warp * 16 + lane / 4 + 8 * i;
        int h, w;
        if constexpr (LINEAR) {
            h = (64 * j + row) / PITCH;
            w = 64 * j + row - h * PITCH;
        } else {
            h = 8 * (j / (WIDE / 8)) + warp * 2 + i;
            w = 8 * (j % (WIDE / 8)) + lane / 4;
        }
        bool is_inside = is_patch && corner.h + h < (int)p.pixels[1] && corner.w + w < (int)p.pixels[2];
        if constexpr (LINEAR) is_inside = is_inside && h < TALL && w < WIDE;
        found.is_inside[i] = is_inside;
        found.at[i][0] = is_inside ? corner.n : 0;
        found.at[i][1] = found.at[i][2] = 0;
        found.at[i][3] = is_inside ? corner.d : 0;
        found.at[i][4] = is_inside ? corner.h + h : 0;
        found.at[i][5] = is_inside ? corner.w + w : 0;
    }
    return found;
}

// What a patch needs beside the taps of a plane: blocks of channels, of one slice of the image after the other.
__device__ __forceinline__ int blocks_of(const Params& p) {
    return (int)p.channel_blocks * (SPATIAL == 3 ? (int)p.taps[0] + (int)p.run - 1 : 1);
}
// And what filters have of these.
__device__ __forceinline__ int filter_blocks_of(const Params& p) {
    return (int)p.channel_blocks * (SPATIAL == 3 ? (int)p.taps[0] : 1);
}
struct PatchBlock {
    int channels = 0, slice = 0;
    __device__ __forceinline__ void advance(const Params& p) {
        if (++channels == (int)p.channel_blocks && SPATIAL == 3) channels = 0, ++slice;
    }
};
// Whether its channels are the last ones, which may be few.
__device__ __forceinline__ bool is_last(const Params& p, const PatchBlock& block) { return block.channels + 1 == (int)p.channel_blocks; }

__device__ __forceinline__ void copy_patch(
    const Params& p, smem_addr_t to, smem_addr_t barrier, const PatchBlock& block, const Corner& corner
) {
    const int w = corner.w + (int)p.lowest[2], h = corner.h + (int)p.lowest[1];
    if constexpr (SPATIAL == 3) {
        const int d = corner.d * (int)p.traversal_stride[0] + (int)p.lowest[0] + block.slice * abs((int)p.dilation[0]);
        tma_load_tile(to, p.im2col_map[0], barrier, block.channels * TILE_K, w, h, d, corner.n);
    } else {
        tma_load_tile(to, p.im2col_map[0], barrier, block.channels * TILE_K, w, h, corner.n);
    }
}

// Filters of one tap, as many channels deep as patches.
__device__ __forceinline__ void copy_filter(
    const Params& p, smem_addr_t to, smem_addr_t barrier, const PatchBlock& from, int tap, int column
) {
    const int r = tap / TAPS_W, s = tap - r * TAPS_W, block = from.channels;
    const int in_filter =
        (int)p.tap_first + from.slice * (int)p.tap_pace[0] + r * (int)p.tap_pace[1] + s * (int)p.tap_pace[2];
    if constexpr (FILTER_MN_MAJOR) {
        #pragma unroll
        for (int j = 0; j < RESIDUAL_SLABS; ++j)
            tma_load_tile(to + j * FILTER_PANEL, p.dense_map[0], barrier, column + j * SLAB_ROWS, in_filter, block * TILE_K);
    } else if constexpr (PERMUTE_N) {
        const int k = in_filter * (int)p.tap_stride + block * TILE_K;
        if constexpr (SWAP_AB) tma_load_tile(to, p.dense_map[0], barrier, k, 0, 0, column / 16);
        else tma_load_tile(to, p.dense_map[0], barrier, k, 0, 0, 0, column / (4 * VEC_N));
    } else {
        tma_load_tile(to, p.dense_map[0], barrier, block * TILE_K, in_filter, column);
    }
}

// The same rows of a later slice of a patch.
__device__ __forceinline__ RowCoords rows_of_slice(const Params& p, RowCoords rows, int slice) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int d = rows.at[i][3] + slice;
        rows.is_inside[i] = rows.is_inside[i] && d < (int)p.pixels[0];
        rows.at[i][3] = rows.is_inside[i] ? d : 0;
    }
    return rows;
}

// Filters that stay, in stages of one tap of a plane. STAGE_K: what a slice of the image gives to the slices of the result that it
// meets, the first of them first, is columns side by side.
__device__ __forceinline__ void copy_filters(const Params& p, smem_addr_t to, smem_addr_t barrier) {
    const int count = filter_blocks_of(p);
    mbarrier_expect_tx(barrier, TAPS * count * B_BYTES);
    PatchBlock block;
    #pragma unroll 1
    for (int i = 0; i < count; ++i, block.advance(p))
        #pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap) {
            const int place = STAGE_K == 1 ? i * TAPS + tap : (block.channels * TAPS + tap) * STAGE_K + STAGE_K - 1 - block.slice;
            copy_filter(p, to + place * B_BYTES, barrier, block, tap, 0);
        }
}
