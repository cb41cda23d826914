// Halo tiles in shared memory, and the TMA loads that bring them and the filters (hopper_halo.cu, hopper_halo_swap_ab.cu).
//
// Layout: a halo tile is a TILE_H x TILE_W tile of output pixels with the border that the taps reach: HALO_H x HALO_W input
//         pixels, one row of PIXEL_BYTES in shared memory for each, zeros outside the image. The swizzle depends on the address
//         alone, so a tap is an offset of the descriptor: tap (r, s) starts r * DILATION_H * HALO_W + s * DILATION_W rows later.
// K:      one load brings a K block: PIXEL_BYTES of channels, of one depth slice of the image where there are three axes.
//
// Required constants (from the generator):
//   TILE_H, TILE_W           output pixels of a halo tile
//   TAPS_H, TAPS_W           taps of a plane of the filter; DILATION_H, DILATION_W: input pixels from tap to tap
//   PIXEL_BYTES              bytes of channels of a K block, 128 or 64: the swizzle span
//   HALO_TILE_BYTES          room for a halo tile: whole 1024 bytes, and all rows that an MMA reads
//   HALO_TILES               halo tiles of a consumer warpgroup in one stage
//   STAGES, FILTER_STAGES    stages of the halo tiles' pipeline and of the filters'
//   WEIGHT_STATIONARY        all filters stay in shared memory
//   FLAT_ROWS                MMA rows are consecutive rows of shared memory; otherwise they are 8 x 8 pixels
//   DEPTH_SLICES             output slices whose accumulators one thread holds side by side, 1 unless WEIGHT_STATIONARY
//   TAIL_MMA_STEPS           MMA steps of the last K block of channels, 1 to 4

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1), TAPS = TAPS_H * TAPS_W;
constexpr int HALO_W = TILE_W + (TAPS_W - 1) * DILATION_W, HALO_H = TILE_H + (TAPS_H - 1) * DILATION_H;
constexpr int HALO_LOAD_BYTES = HALO_H * HALO_W * PIXEL_BYTES;  // bytes that TMA writes of a halo tile
// MN-major filters come in whole slabs, so the last columns may belong to the next tile; 32 columns are rows of 64 bytes.
constexpr int FILTER_SLABS = (TILE_CHANNELS + SLAB_ROWS - 1) / SLAB_ROWS;
constexpr int FILTER_ROW_BYTES = !FILTER_MN_MAJOR ? PIXEL_BYTES : TILE_CHANNELS < SLAB_ROWS ? TILE_CHANNELS * (int)sizeof(Element) : SWIZZLE_BYTES;
constexpr int FILTER_SLAB_BYTES = PIXEL_BYTES / (int)sizeof(Element) * FILTER_ROW_BYTES;  // of MN-major filters
constexpr int TAP_BYTES = FILTER_MN_MAJOR ? FILTER_SLABS * FILTER_SLAB_BYTES : TILE_CHANNELS * FILTER_ROW_BYTES;  // filters of a tap and K block
[[maybe_unused]] constexpr int FILTER_DESC_STEP_K = FILTER_MN_MAJOR ? 16 * FILTER_ROW_BYTES >> 4 : DESC_STEP_K<false>;
static_assert((PIXEL_BYTES == 128 || PIXEL_BYTES == 64) && (FILTER_ROW_BYTES == 128 || FILTER_ROW_BYTES == 64), "128-byte or 64-byte swizzle");
constexpr smem_desc_t swizzle_mode(int row_bytes) { return (smem_desc_t)(row_bytes == 128 ? 1 : 2) << 62; }
[[maybe_unused]] constexpr int HALO_TILES_PER_STAGE = WEIGHT_STATIONARY ? 1 : CONSUMER_WARPGROUPS * HALO_TILES;
[[maybe_unused]] constexpr int EMPTY_ARRIVALS = WEIGHT_STATIONARY ? 1 : CONSUMER_WARPGROUPS;  // that free a stage
constexpr int MMA_TILES_PER_HALO_TILE = MMA_TILES_M / HALO_TILES;
[[maybe_unused]] constexpr int HALO_PIPELINES = WEIGHT_STATIONARY ? CONSUMER_WARPGROUPS : 1;
// Where registers suffice, the first MMA of a tile overwrites the accumulators, so that no code clears them (as in hopper_gemm.cu).
[[maybe_unused]] constexpr bool CLEAR_BY_SCALE_D = WEIGHT_STATIONARY && SPARE_REGISTERS && DEPTH_SLICES == 1;
[[maybe_unused]] constexpr int ALL_ACCUMS = DEPTH_SLICES * ACCUMS;  // of a thread, for 64 rows
static_assert(DEPTH_SLICES == 1 || (WEIGHT_STATIONARY && SPATIAL == 3), "output slices side by side need all filters and a depth");
static_assert(
    FLAT_ROWS || SWAP_AB || (TILE_H % 8 == 0 && TILE_W % 8 == 0 && TILE_H * TILE_W == 64 * MMA_TILES_PER_HALO_TILE), "whole 8 x 8 pixels"
);
static_assert(!FLAT_ROWS || (TILE_H - 1) * HALO_W + TILE_W <= 64 * MMA_TILES_PER_HALO_TILE, "all image rows lie within the MMA rows");
static_assert(MMA_TILES_M % HALO_TILES == 0 && (HALO_TILES == 1 || !WEIGHT_STATIONARY), "halo tiles of a consumer");
static_assert(HALO_TILE_BYTES >= HALO_LOAD_BYTES && HALO_TILE_BYTES % 1024 == 0 && TILE_N % 32 == 0, "whole swizzle atoms and column blocks");

// Rows of shared memory ahead of the first of 64 MMA rows: within a halo tile, and from a consumer's first halo tile.
constexpr int row_in_halo_tile(int j) { return FLAT_ROWS ? 64 * j : 8 * (j / (TILE_W / 8)) * HALO_W + j % (TILE_W / 8) * 8; }
constexpr int first_row(int j) {
    return j / MMA_TILES_PER_HALO_TILE * (HALO_TILE_BYTES / PIXEL_BYTES) + row_in_halo_tile(j % MMA_TILES_PER_HALO_TILE);
}

__device__ __forceinline__ smem_desc_t halo_desc(smem_addr_t address) {
    const smem_desc_t stride_bytes = ((FLAT_ROWS ? 8 : HALO_W) * PIXEL_BYTES) >> 4, unused = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | unused << 16 | stride_bytes << 32 | swizzle_mode(PIXEL_BYTES);
}

__device__ __forceinline__ smem_desc_t filter_desc(smem_addr_t address) {
    const smem_desc_t leading_bytes = FILTER_MN_MAJOR ? FILTER_SLAB_BYTES >> 4 : 1, stride_bytes = (8 * FILTER_ROW_BYTES) >> 4;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | leading_bytes << 16 | stride_bytes << 32 | swizzle_mode(FILTER_ROW_BYTES);
}

struct HaloTileCoord { int d, h, w, n; };  // of the tile's first output pixel; d: its first output slice

__device__ __forceinline__ HaloTileCoord decode_halo_tile(const Params& p, int tile) {
    HaloTileCoord coord;
    coord.w = divmod_inplace(tile, (int)p.halo_tiles_w) * TILE_W;
    coord.h = divmod_inplace(tile, (int)p.halo_tiles_h) * TILE_H;
    coord.d = SPATIAL == 3 ? divmod_inplace(tile, (int)p.halo_tiles_d) * (int)p.tile_d : 0;
    coord.n = tile;
    return coord;
}

// Two warps prefetch into L2 what the epilogue will read of result-shaped operands for a tile, one image row after the other.
__device__ __forceinline__ void prefetch_epilogue_operands(const Params& p, int tile, int first_column) {
    const HaloTileCoord coord = decode_halo_tile(p, tile);
    #pragma unroll 1
    for (int i = (int)threadIdx.x % 64; i < TILE_H * TILE_W; i += 64) {
        const int h = coord.h + i / TILE_W, w = coord.w + i % TILE_W;
        if (tile >= (int)p.halo_tiles || h >= (int)p.pixels[1] || w >= (int)p.pixels[2]) continue;
        int at[6] = {coord.n, 0, 0, coord.d, h, w};
        #pragma unroll 1
        for (at[2] = first_column; at[2] < first_column + TILE_N && at[2] < (int)p.columns; at[2] += PREFETCH_ELEMENTS) prefetch(p, at);
    }
}

// The result coordinates of this thread's two rows of MMA tile j of a halo tile.
__device__ __forceinline__ RowCoords halo_row_coords(const Params& p, int tile, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const bool is_tile = tile < (int)p.halo_tiles;
    const HaloTileCoord coord = decode_halo_tile(p, is_tile ? tile : 0);
    RowCoords rows;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = warp * 16 + lane / 4 + 8 * i;
        int h, w;
        if constexpr (FLAT_ROWS) {
            h = (64 * j + row) / HALO_W;
            w = 64 * j + row - h * HALO_W;
        } else {
            h = 8 * (j / (TILE_W / 8)) + warp * 2 + i;
            w = 8 * (j % (TILE_W / 8)) + lane / 4;
        }
        bool is_inside = is_tile && coord.h + h < (int)p.pixels[1] && coord.w + w < (int)p.pixels[2];
        if constexpr (FLAT_ROWS) is_inside = is_inside && h < TILE_H && w < TILE_W;
        rows.is_inside[i] = is_inside;
        rows.coord[i][0] = is_inside ? coord.n : 0;
        rows.coord[i][1] = rows.coord[i][2] = 0;
        rows.coord[i][3] = is_inside ? coord.d : 0;
        rows.coord[i][4] = is_inside ? coord.h + h : 0;
        rows.coord[i][5] = is_inside ? coord.w + w : 0;
    }
    return rows;
}

// The same rows `slice` output slices deeper.
__device__ __forceinline__ RowCoords depth_slice_coords(const Params& p, RowCoords rows, int slice) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int d = rows.coord[i][3] + slice;
        rows.is_inside[i] = rows.is_inside[i] && d < (int)p.pixels[0];
        rows.coord[i][3] = rows.is_inside[i] ? d : 0;
    }
    return rows;
}

// K blocks of a halo tile, slice by slice: the image has more depth slices than the filter where a tile has several output slices.
__device__ __forceinline__ int halo_k_blocks(const Params& p) {
    return (int)p.channel_blocks * (SPATIAL == 3 ? (int)p.taps[0] + (int)p.tile_d - 1 : 1);
}
__device__ __forceinline__ int filter_k_blocks(const Params& p) {
    return (int)p.channel_blocks * (SPATIAL == 3 ? (int)p.taps[0] : 1);
}
struct KBlock {
    int channel_block = 0, slice = 0;
    __device__ __forceinline__ void advance(const Params& p) {
        if (++channel_block == (int)p.channel_blocks && SPATIAL == 3) channel_block = 0, ++slice;
    }
};
// The last channel block of a slice may hold fewer channels: TAIL_MMA_STEPS.
__device__ __forceinline__ bool is_tail(const Params& p, const KBlock& k_block) { return k_block.channel_block + 1 == (int)p.channel_blocks; }

__device__ __forceinline__ void load_halo_tile(
    const Params& p, smem_addr_t to, smem_addr_t barrier, const KBlock& k_block, const HaloTileCoord& coord
) {
    const int w = coord.w + (int)p.lower_corner[2], h = coord.h + (int)p.lower_corner[1];
    if constexpr (SPATIAL == 3) {
        const int d = coord.d * (int)p.traversal_stride[0] + (int)p.lower_corner[0] + k_block.slice * abs((int)p.dilation[0]);
        tma_load_tile(to, p.im2col_map[0], barrier, k_block.channel_block * TILE_K, w, h, d, coord.n);
    } else {
        tma_load_tile(to, p.im2col_map[0], barrier, k_block.channel_block * TILE_K, w, h, coord.n);
    }
}

// Loads the filters of one tap of a plane for one K block.
__device__ __forceinline__ void load_filter_tap(
    const Params& p, smem_addr_t to, smem_addr_t barrier, const KBlock& k_block, int tap, int column
) {
    const int r = tap / TAPS_W, s = tap - r * TAPS_W, block = k_block.channel_block;
    const int filter_tap =
        (int)p.first_tap_index + k_block.slice * (int)p.tap_index_stride[0] + r * (int)p.tap_index_stride[1] + s * (int)p.tap_index_stride[2];
    if constexpr (FILTER_MN_MAJOR) {
        #pragma unroll
        for (int j = 0; j < FILTER_SLABS; ++j)
            tma_load_tile(to + j * FILTER_SLAB_BYTES, p.dense_map[0], barrier, column + j * SLAB_ROWS, filter_tap, block * TILE_K);
    } else if constexpr (PERMUTE_N) {
        const int k = filter_tap * (int)p.tap_stride + block * TILE_K;
        if constexpr (SWAP_AB) tma_load_tile(to, p.dense_map[0], barrier, k, 0, 0, column / 16);
        else tma_load_tile(to, p.dense_map[0], barrier, k, 0, 0, 0, column / (4 * VEC_N));
    } else {
        tma_load_tile(to, p.dense_map[0], barrier, block * TILE_K, filter_tap, column);
    }
}

// Loads all filters, one TAP_BYTES after the other. DEPTH_SLICES: the filter slices of a tap lie side by side, the last one first,
// as columns that one MMA multiplies by a slice of the image.
__device__ __forceinline__ void load_stationary_filters(const Params& p, smem_addr_t to, smem_addr_t barrier) {
    const int k_blocks = filter_k_blocks(p);
    mbarrier_expect_tx(barrier, TAPS * k_blocks * TAP_BYTES);
    KBlock k_block;
    #pragma unroll 1
    for (int i = 0; i < k_blocks; ++i, k_block.advance(p))
        #pragma unroll 1
        for (int tap = 0; tap < TAPS; ++tap) {
            const int slot = DEPTH_SLICES == 1 ? i * TAPS + tap : (k_block.channel_block * TAPS + tap) * DEPTH_SLICES + DEPTH_SLICES - 1 - k_block.slice;
            load_filter_tap(p, to + slot * TAP_BYTES, barrier, k_block, tap, 0);
        }
}
