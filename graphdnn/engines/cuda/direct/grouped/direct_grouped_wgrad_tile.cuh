// Filter gradient of groups of 8 to 64 channels on tensor cores (mma.sync): the MMAs of a tile, and the partial sums.
//
// Tile:       a CTA owns the channels of GROUPS_PER_CTA groups and goes through tiles of dy, each with its halo tile of x.
//             WARPS_M warps divide the filter elements of a group, and WARPS_K warps divide the pixels. All accumulators stay
//             in registers.
// MMA:        M is two chunks of 8 channels of x, each with one tap. N is 8 channels of dy of the same group. K is 16
//             pixels. A product never mixes groups. ldmatrix transposes both operands.
// K order:    pixels follow each other across rows, and each tap loads its own A operand. Or (SLIDING_ROWS > 1) warps slide down
//             the rows of 16 columns: a row of x is loaded once for all rows of dy whose taps reach it, which stay in registers.
// Layout:     a pixel of x takes PIXEL_PITCH bytes, a pixel of dy DY_PIXEL_PITCH bytes. Where TMA_SWIZZLE, TMA writes rows of
//             at most 128 bytes with its swizzle, and wider pixels have one such row in each of several boxes.
//
// Required constants (from the generator): R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, FLIP: the filter. GROUP_IN,
// GROUP_OUT: channels of a group in x and in dy. GROUPS_PER_CTA, WARPS_M, WARPS_K, SLIDING_ROWS, PIXEL_PITCH, DY_PIXEL_PITCH,
// TMA_SWIZZLE: see above. STAGES, CTAS_PER_SM, REDUCE_WARPS, VEC_WIDTH.

#include "ldmatrix.cuh"
#include "direct_mma.cuh"
#include "direct_grouped_halo.cuh"

constexpr int IN_CHUNKS = GROUP_IN / 8, OUT_CHUNKS = GROUP_OUT / 8, WINDOW = R * S * GROUP_IN, CHUNKS = WINDOW / 8;
constexpr int ROW_CHUNKS = CHUNKS / SLIDING_ROWS;
constexpr int WARP_MMAS = ((ROW_CHUNKS + 1) / 2 + WARPS_M - 1) / WARPS_M;  // MMA tiles of a warp along M
constexpr int WARPS = GROUPS_PER_CTA * WARPS_M * WARPS_K, THREADS = 32 * WARPS;
constexpr int LINE_SUMS = WARP_MMAS * OUT_CHUNKS * 4, THREAD_SUMS = SLIDING_ROWS * LINE_SUMS;
typedef float Accumulators[SLIDING_ROWS][WARP_MMAS][OUT_CHUNKS][4];
static_assert(SLIDING_ROWS == 1 || (SLIDING_ROWS == R && STRIDE_H == 1 && DILATION_H == 1), "lines that follow each other");

__device__ __forceinline__ float& accum_at(Accumulators& accum, int i) {
    return accum[i / LINE_SUMS][i / (OUT_CHUNKS * 4) % WARP_MMAS][i / 4 % OUT_CHUNKS][i % 4];
}

// The position of a warp in the CTA.
struct WarpRole {
    int lane, group, warp_m, warp_k;
};

__device__ __forceinline__ WarpRole warp_role(int warp) {
    return {(int)threadIdx.x % 32, warp % GROUPS_PER_CTA, warp / GROUPS_PER_CTA % WARPS_M, warp / (GROUPS_PER_CTA * WARPS_M)};
}

// The part of a tile that lies inside the images.
struct __align__(16) TileExtent {
    int columns, count, inverse;  // `inverse`: 2^16 / columns, rounded up, divides the pixels of a tile
    int rows_per_image, line_gap;            // rows of an image, and rows of x between images beyond the strided rows
    int images;
};

__device__ __forceinline__ TileExtent tile_extent(const Params& p, const TileCoord& tile_origin) {
    const auto minimum = [](int a, int b) { return a < b ? a : b; };
    const int columns = minimum((int)p.tile_w, (int)p.out_w - tile_origin.column);
    const int rows = minimum((int)p.tile_h, (int)p.out_h - tile_origin.row);
    const int images = minimum((int)p.tile_images, (int)p.images - tile_origin.n);
    // A tile of several images has all rows and columns of each image.
    return {columns, images * rows * columns, (65535 + columns) / columns, rows, (int)p.halo_h - rows * STRIDE_H,
            images};
}

// Applies the TMA swizzle, which permutes 16-byte chunks by the row number.
template <int BYTES> __device__ __forceinline__ int swizzled(int at) {
    return TMA_SWIZZLE && (BYTES == 32 || BYTES == 64 || BYTES == 128) ? at ^ (at >> 3 & (BYTES - 16)) : at;
}

// Offsets of this lane's chunks relative to a pixel. `pitch`: bytes of a row. `residue_stride`: bytes between columns of
// different residue modulo the stride.
__device__ __forceinline__ void chunk_offsets(const Params& p, const WarpRole& role, int pitch, int residue_stride, int (&offset)[WARP_MMAS]) {
    const int group_offset = role.group * (GROUP_IN * 2), first = group_offset / PIXEL_PITCH * (int)p.x_slice_bytes + group_offset % PIXEL_PITCH;
    #pragma unroll
    for (int i = 0; i < WARP_MMAS; ++i) {
        const int chunk = (role.warp_m * WARP_MMAS + i) * 2 + role.lane / 8 % 2, tap = chunk / IN_CHUNKS;
        const int row = tap / S * DILATION_H, column = tap % S * DILATION_W;
        const int at = row * pitch + column / STRIDE_W * PIXEL_PITCH + column % STRIDE_W * residue_stride + chunk % IN_CHUNKS * 16;
        offset[i] = chunk < ROW_CHUNKS ? at + first : first;
    }
}

struct PixelOffset {
    bool is_inside;
    int x, dy;  // bytes
};

__device__ __forceinline__ PixelOffset pixel_offset(const Params& p, const TileExtent& extent, int pixel, int pitch) {
    const int line = pixel * extent.inverse >> 16, column = pixel - line * extent.columns;
    int image = 0;
    if (p.tile_images > 1) image = line / extent.rows_per_image;
    return {pixel < extent.count, (line * STRIDE_H + image * extent.line_gap) * pitch + column * PIXEL_PITCH,
            (line * (int)p.tile_w + column) * DY_PIXEL_PITCH};
}

__device__ __forceinline__ void multiply_pixels(
    const Params& p, const WarpRole& role, const TileExtent& extent, const unsigned char* memory, int halo_tile, int dy_tile, int zeros, int pitch,
    const int (&offset)[WARP_MMAS], Accumulators& accum
) {
    #pragma unroll 1
    for (int first = role.warp_k * 16; first < extent.count; first += WARPS_K * 16) {
        const PixelOffset rows = pixel_offset(p, extent, first + role.lane / 16 * 8 + role.lane % 8, pitch);
        const PixelOffset columns = pixel_offset(p, extent, first + role.lane % 16, pitch);
        unsigned int b[(OUT_CHUNKS + 1) / 2][4];
        #pragma unroll
        for (int j = 0; j < OUT_CHUNKS; j += 2) {
            const int at = dy_tile + columns.dy + (j + 1 < OUT_CHUNKS ? j + role.lane / 16 : j) * 16;
            ldmatrix_x4<true>(b[j / 2], memory, columns.is_inside ? swizzled<DY_PIXEL_PITCH>(at) : zeros);
        }
        #pragma unroll
        for (int i = 0; i < WARP_MMAS; ++i) {
            unsigned int a[4];
            ldmatrix_x4<true>(a, memory, rows.is_inside ? swizzled<PIXEL_PITCH>(halo_tile + rows.x + offset[i]) : zeros);
            #pragma unroll
            for (int j = 0; j < OUT_CHUNKS; ++j)
                mma_sync<Element, true>(
                    accum[0][i][j], a[0], a[1], a[2], a[3], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]
                );
        }
    }
}

// The offsets of this lane's column in a group of eight columns.
__device__ __forceinline__ PixelOffset column_offset(const Params& p, const TileExtent& extent, int column_group, int column, int pitch) {
    const int groups_per_line = (extent.columns + 7) / 8, image = column_group / groups_per_line, at = (column_group - image * groups_per_line) * 8 + column;
    return {image < extent.images && at < extent.columns, image * (int)p.halo_h * pitch + at * PIXEL_PITCH,
            (image * (int)(p.tile_h * p.tile_w) + at) * DY_PIXEL_PITCH};
}

__device__ __forceinline__ void multiply_lines(
    const Params& p, const WarpRole& role, const TileExtent& extent, const unsigned char* memory, int halo_tile, int dy_tile, int zeros, int pitch,
    const int (&offset)[WARP_MMAS], Accumulators& accum
) {
    const int column_groups = extent.images * ((extent.columns + 7) / 8), line_bytes = (int)p.tile_w * DY_PIXEL_PITCH;
    #pragma unroll 1
    for (int first = 2 * role.warp_k; first < column_groups; first += 2 * WARPS_K) {
        const PixelOffset rows = column_offset(p, extent, first + role.lane / 16, role.lane % 8, pitch);
        const PixelOffset columns = column_offset(p, extent, first + role.lane / 8 % 2, role.lane % 8, pitch);
        int x = halo_tile + rows.x, dy = dy_tile + columns.dy;
        unsigned int b[SLIDING_ROWS][(OUT_CHUNKS + 1) / 2][4];
        // Multiplies a row of x. It also loads the row of dy with the same index, which later rows of x reuse. Rows outside dy are
        // skipped, because 0 * inf would be NaN.
        const auto multiply_line = [&](int line, int k, bool is_edge) {
            if (!is_edge || line < extent.rows_per_image)
                #pragma unroll
                for (int j = 0; j < OUT_CHUNKS; j += 2) {
                    const int at = dy + (j + 1 < OUT_CHUNKS ? j + role.lane / 16 : j) * 16;
                    ldmatrix_x4<true>(b[k][j / 2], memory, columns.is_inside ? swizzled<DY_PIXEL_PITCH>(at) : zeros);
                }
            #pragma unroll
            for (int i = 0; i < WARP_MMAS; ++i) {
                unsigned int a[4];
                ldmatrix_x4<true>(a, memory, rows.is_inside ? swizzled<PIXEL_PITCH>(x + offset[i]) : zeros);
                #pragma unroll
                for (int r = 0; r < SLIDING_ROWS; ++r) {
                    if (is_edge && (line < r || line - r >= extent.rows_per_image)) continue;
                    const auto& with = b[(k + SLIDING_ROWS - r) % SLIDING_ROWS];
                    #pragma unroll
                    for (int j = 0; j < OUT_CHUNKS; ++j)
                        mma_sync<Element, true>(
                            accum[r][i][j], a[0], a[1], a[2], a[3], with[j / 2][j % 2 * 2], with[j / 2][j % 2 * 2 + 1]
                        );
                }
            }
            x += pitch, dy += line_bytes;
        };
        const int all = extent.rows_per_image + SLIDING_ROWS - 1;
        #pragma unroll 1
        for (int line = 0; line < all; line += SLIDING_ROWS) {
            const bool is_edge = line < SLIDING_ROWS - 1 || line + SLIDING_ROWS > extent.rows_per_image;
            if (is_edge) {
                #pragma unroll
                for (int k = 0; k < SLIDING_ROWS; ++k)
                    if (line + k < all) multiply_line(line + k, k, true);
            } else {
                #pragma unroll
                for (int k = 0; k < SLIDING_ROWS; ++k) multiply_line(line + k, k, false);
            }
        }
    }
}

// `halo_tile` and `dy_tile` are the offsets of the tile, `zeros` the offset of 16 zero bytes.
__device__ __forceinline__ void multiply_tile(
    const Params& p, const WarpRole& role, const TileExtent& extent, const unsigned char* memory, int halo_tile, int dy_tile, int zeros, int pitch,
    const int (&offset)[WARP_MMAS], Accumulators& accum
) {
    const int group_offset = role.group * (GROUP_OUT * 2);
    dy_tile += group_offset / DY_PIXEL_PITCH * (int)p.dy_slice_bytes + group_offset % DY_PIXEL_PITCH;
    if constexpr (SLIDING_ROWS > 1) multiply_lines(p, role, extent, memory, halo_tile, dy_tile, zeros, pitch, offset, accum);
    else multiply_pixels(p, role, extent, memory, halo_tile, dy_tile, zeros, pitch, offset, accum);
}

// Adds the warps along K in order, then stores the CTA's partial sum: the filter elements of each channel of dy.
__device__ __forceinline__ void store_partial(const Params& p, const WarpRole& role, unsigned char* memory, int group_block, int split, Accumulators& accum) {
    if constexpr (WARPS_K > 1) {
        float* const exchange = (float*)memory + (role.warp_m * GROUPS_PER_CTA + role.group) * (32 * THREAD_SUMS) + role.lane;
        #pragma unroll 1
        for (int from = 1; from < WARPS_K; ++from) {
            __syncthreads();
            if (role.warp_k == from)
                #pragma unroll
                for (int i = 0; i < THREAD_SUMS; ++i) exchange[i * 32] = accum_at(accum, i);
            __syncthreads();
            if (role.warp_k == 0)
                #pragma unroll
                for (int i = 0; i < THREAD_SUMS; ++i) accum_at(accum, i) += exchange[i * 32];
        }
    }
    if (role.warp_k != 0) return;
    const long long channels = p.channels, channel = (group_block * GROUPS_PER_CTA + role.group) * GROUP_OUT + role.lane % 4 * 2;
    float* const to = p.partial + (split * channels + channel) * WINDOW + role.lane / 4;
    #pragma unroll
    for (int i = 0; i < THREAD_SUMS; ++i) {
        const int chunk = (role.warp_m * WARP_MMAS + i / (OUT_CHUNKS * 4) % WARP_MMAS) * 2 + i / 2 % 2;
        const int at = (i / LINE_SUMS * ROW_CHUNKS + chunk) * 8, k = i / 4 % OUT_CHUNKS * 8 + i % 2;
        if (chunk < ROW_CHUNKS) to[k * WINDOW + at] = accum_at(accum, i);
    }
}

__device__ __forceinline__ void clear(Accumulators& accum) {
    #pragma unroll
    for (int i = 0; i < THREAD_SUMS; ++i) accum_at(accum, i) = 0.0f;
}
