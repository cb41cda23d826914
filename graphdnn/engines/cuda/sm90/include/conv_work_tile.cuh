// Work tiles of a convolution as implicit GEMM, and the TMA loads of their K tiles (hopper_gemm.cu and other kernels).
//
//             rows (M)    columns (N)               K                          A                    B
//   fprop     pixels      filter channels           taps, image channels       pixels, K-major      filter, K-major
//   dgrad     pixels of   image channels            taps, filter channels      pixels, K-major      filter, MN-major where
//             dx                                                                                    FILTER_MN_MAJOR
//   SWAP_AB   channels    pixels                    as fprop and dgrad         filter               pixels, K-major
//   wgrad     channels    taps, image channels      pixels                     dy, MN-major         x, MN-major
//             of dy
//
// A strided dgrad is one GEMM for each residue of the pixels modulo the stride. One launch has the tiles of all residues.
//
// Layout:     a stage has TILE_M rows of A, then TILE_N rows of B, in rows of 128 bytes with the 128-byte swizzle. Images are NHWC.
//
// Required constants (from the generator):
//   TILE_M, TILE_N      rows and columns of a tile
//   SWAP_AB             A is the filter and B the image: pixels are the columns of the GEMM
//   WGRAD               the GEMM of a filter gradient
//   FILTER_MN_MAJOR     the filter is MN-major, in slabs of 64 channels; it is K-major otherwise
//   PERMUTE_N           the filter's tensor map permutes rows, so that a thread's accumulators are VEC_N contiguous columns
//   VEC_N               contiguous columns of a thread: 2, 4 or 8
//   RESIDUES            GEMMs of the launch: 1, or the residues of a strided dgrad
//   SPATIAL             spatial axes of the image, 1 to 3
//   SPLIT_K             K is divided among p.splits work items
//   HAS_RASTER_GROUPS   p.raster_width tile rows are a raster group
//   HAS_MAPS_PER_GROUP  each of p.maps_per_group groups has its own tensor maps
//   type Element        of the im2col operand

#include "hopper_pipeline.cuh"

[[maybe_unused]] constexpr int TILE_K = SWIZZLE_BYTES / (int)sizeof(Element);
constexpr int SLAB_ROWS = 64;
[[maybe_unused]] constexpr int TILE_PIXELS = SWAP_AB ? TILE_N : TILE_M, TILE_CHANNELS = SWAP_AB ? TILE_M : TILE_N;

// Replaces `number` by the quotient and returns the remainder. Unsigned division takes fewer instructions.
__device__ __forceinline__ int divmod_inplace(int& number, int divisor) {
    const unsigned int dividend = number, quotient = dividend / (unsigned int)divisor;
    number = (int)quotient;
    return (int)(dividend - quotient * (unsigned int)divisor);
}

// The K tiles [begin, end) of a split. The first splits have one more. One short division, because it delays the first load.
__device__ __forceinline__ void split_range(int k_tiles, int split, int splits, int& begin, int& end) {
    const int longer = divmod_inplace(k_tiles, splits);
    begin = split * k_tiles + min(split, longer);
    end = begin + k_tiles + (split < longer);
}

// What a CTA computes at a time: a tile of one group's GEMM, and its K tiles [k_begin, k_end).
struct WorkTile {
    int residue, group, tile_m, tile_n, tile;
    int k_begin, k_end;
};

// Tile rows of a raster group: a CTA's tiles go down the columns of one group before the next group begins.
template <class Fields> __device__ __forceinline__ int raster_width_of(const Fields& p) {
    if constexpr (HAS_RASTER_GROUPS) return (int)p.raster_width;
    else return 1;
}

__device__ __forceinline__ WorkTile decode_work_tile(const Params& p, int item) {
    WorkTile w;
    int split = item;
    w.tile = SPLIT_K ? divmod_inplace(split, (int)p.tiles) : item;
    w.residue = 0;
    #pragma unroll
    for (int i = 1; i < RESIDUES; ++i)
        if (w.tile >= (int)p.first_tile[i]) w.residue = i;
    int rem = w.tile - (int)p.first_tile[w.residue];
    const int tiles_n = (int)p.tiles_n, tiles_m = (int)p.tiles_m[w.residue];
    const int raster_width = raster_width_of(p);
    if (raster_width == 1) {
        w.tile_n = divmod_inplace(rem, tiles_n);
        w.tile_m = divmod_inplace(rem, tiles_m);
        w.group = rem;
    } else {
        int raster_group = divmod_inplace(rem, tiles_n * tiles_m);
        w.group = rem;
        int tile_in_group = divmod_inplace(raster_group, tiles_n * raster_width);
        const int first_tile_m = raster_group * raster_width;
        w.tile_m = first_tile_m + divmod_inplace(tile_in_group, min(raster_width, tiles_m - first_tile_m));
        w.tile_n = tile_in_group;
    }
    w.k_begin = 0;
    w.k_end = (int)p.k_tiles[w.residue];
    if (SPLIT_K) split_range(w.k_end, split, (int)p.splits, w.k_begin, w.k_end);
    return w;
}

// A pixel: spatial coordinates, outermost first, and the image.
struct Pixel { int coord[3], n; };

__device__ __forceinline__ Pixel decode_pixel(const Params& p, int residue, int index) {
    Pixel pixel;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        if (d < 3 - SPATIAL) pixel.coord[d] = 0;
        else pixel.coord[d] = divmod_inplace(index, (int)p.pixels[residue * 3 + d]);
    }
    pixel.n = index;
    return pixel;
}

// Advances by a number of pixels, given as the coordinates `by`. It needs no division, which would delay a load into a free stage.
__device__ __forceinline__ void advance_pixel(const Params& p, int residue, Pixel& pixel, const Pixel& by) {
    int carry = 0;
    #pragma unroll
    for (int d = 2; d >= 3 - SPATIAL; --d) {
        const int extent = (int)p.pixels[residue * 3 + d], coord = pixel.coord[d] + by.coord[d] + carry;
        carry = coord >= extent;
        pixel.coord[d] = carry ? coord - extent : coord;
    }
    pixel.n += by.n + carry;
}

// A tap of a residue's filter: coordinates, outermost first; taps are counted with the last axis fastest.
struct Tap { int coord[3]; };

__device__ __forceinline__ Tap decode_tap(const Params& p, int residue, int index) {
    Tap tap;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        if (d < 3 - SPATIAL) tap.coord[d] = 0;
        else tap.coord[d] = divmod_inplace(index, (int)p.taps[residue * 3 + d]);
    }
    return tap;
}

__device__ __forceinline__ void advance_tap(const Params& p, int residue, Tap& tap) {
    #pragma unroll
    for (int d = 2; d >= 3 - SPATIAL; --d) {
        if (++tap.coord[d] < (int)p.taps[residue * 3 + d]) return;
        tap.coord[d] = 0;
    }
}

// The im2col offsets of a tap: how far it shifts the traversal of the image.
__device__ __forceinline__ void tap_offset(const Params& p, int residue, const Tap& tap, int (&offset)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        offset[d] = d < 3 - SPATIAL ? 0 : (int)p.tap_origin[residue * 3 + d] + tap.coord[d] * (int)p.dilation[d];
}

// The im2col coordinates of a pixel: what the first tap reads for it.
__device__ __forceinline__ void im2col_start(const Params& p, int residue, const Pixel& pixel, int (&start)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        start[d] = d < 3 - SPATIAL ? 0 : pixel.coord[d] * (int)p.traversal_stride[d] + (int)p.lower_corner[residue * 3 + d];
}

// The index of a tensor map. HAS_MAPS_PER_GROUP: each group has a map, which ends where the channels of the group end, so that no row
// of 128 bytes has channels of two groups.
template <class Fields> __device__ __forceinline__ int map_index(const Fields& p, const WorkTile& w, int number) {
    if constexpr (HAS_MAPS_PER_GROUP) return number * (int)p.maps_per_group + w.group;
    else return number;
}

// Loads the K tiles of an fprop or dgrad work tile, tap by tap. `acquire(a, b, barrier)` waits for a free stage.
template <class Acquire> __device__ __forceinline__ void load_forward_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    const int channel_blocks = (int)p.channel_blocks, channels = (int)p.channels;
    int start[3], offset[3];
    const Pixel pixel = decode_pixel(p, w.residue, w.tile_m * TILE_PIXELS);
    im2col_start(p, w.residue, pixel, start);
    Tap tap = SPLIT_K ? decode_tap(p, w.residue, w.k_begin / channel_blocks) : Tap{};
    int channel_block = SPLIT_K ? w.k_begin % channel_blocks : 0;
    const int column = w.tile_n * TILE_CHANNELS;
    const int image_map = map_index(p, w, w.residue), filter_map = FILTER_MN_MAJOR ? map_index(p, w, 0) : 0;
    #pragma unroll 1
    for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
        tap_offset(p, w.residue, tap, offset);
        int filter_tap = (int)p.first_filter_tap[w.residue];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) filter_tap += tap.coord[d] * (int)p.filter_tap_stride[d];
        const int channel = w.group * channels + channel_block * TILE_K;
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);  // the first call also waits for the previous launch, so all coordinates are computed before it
        const smem_addr_t image = SWAP_AB ? b : a, filter = SWAP_AB ? a : b;
        tma_load_im2col<SPATIAL>(image, p.im2col_map[image_map], barrier, channel, pixel.n, start, offset);
        if constexpr (FILTER_MN_MAJOR) {
            #pragma unroll
            for (int j = 0; j < TILE_CHANNELS / SLAB_ROWS; ++j)
                tma_load_tile(filter + j * SLAB_BYTES, p.dense_map[filter_map], barrier, column + j * SLAB_ROWS, filter_tap, channel);
        } else {
            const int row = w.group * (int)p.columns + column;
            if constexpr (PERMUTE_N)
                tma_load_tile(
                    filter, p.dense_map[0], barrier, filter_tap * (int)p.tap_stride + channel_block * TILE_K, 0, 0, 0, row / (4 * VEC_N)
                );
            else tma_load_tile(filter, p.dense_map[0], barrier, channel_block * TILE_K, filter_tap, row);
        }
        if (++channel_block == channel_blocks) channel_block = 0, advance_tap(p, w.residue, tap);
    }
}

// Columns of a filter gradient are tap blocks: SLAB_ROWS channels of the image at one tap. A tile has WHOLE_TAP_BLOCKS. If they are
// not TILE_N columns, it also has TAIL_COLUMNS of one more block, which TAIL_SHARERS neighbouring tiles share. The shared block
// follows the whole blocks of these tiles.
[[maybe_unused]] constexpr int WHOLE_TAP_BLOCKS = TILE_N / SLAB_ROWS, TAIL_COLUMNS = TILE_N % SLAB_ROWS, TAIL_SHARERS = TAIL_COLUMNS > 0 ? SLAB_ROWS / TAIL_COLUMNS : 1;
[[maybe_unused]] constexpr int LOADED_TAP_BLOCKS = WHOLE_TAP_BLOCKS + (TAIL_COLUMNS > 0);

// A tap block, and the columns of it that a tile has.
struct TapBlock { int index, first_column, columns; };

__device__ __forceinline__ TapBlock decode_tap_block(int tile_n, int j) {
    if (TAIL_COLUMNS == 0) return {tile_n * WHOLE_TAP_BLOCKS + j, 0, SLAB_ROWS};
    int sharing_tiles = tile_n;
    const int sharer = divmod_inplace(sharing_tiles, TAIL_SHARERS), first = sharing_tiles * (TAIL_SHARERS * WHOLE_TAP_BLOCKS + 1);
    if (j < WHOLE_TAP_BLOCKS) return {first + sharer * WHOLE_TAP_BLOCKS + j, 0, SLAB_ROWS};
    return {first + TAIL_SHARERS * WHOLE_TAP_BLOCKS, sharer * TAIL_COLUMNS, TAIL_COLUMNS};
}

// Loads the K tiles of a filter gradient; a K tile has STAGE_K pixels. An operand in several limbs has a tensor map for each limb,
// and its limbs follow one another in a stage.
template <int OPERAND_LIMBS = 1, int STAGE_K = SLAB_ROWS, class Acquire>
__device__ __forceinline__ void load_wgrad_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    int channel[LOADED_TAP_BLOCKS], offset[LOADED_TAP_BLOCKS][3];
    #pragma unroll
    for (int j = 0; j < LOADED_TAP_BLOCKS; ++j) {
        const TapBlock tap_block = decode_tap_block(w.tile_n, j);
        const int tap = tap_block.index / (int)p.channel_blocks, channel_block = tap_block.index - tap * (int)p.channel_blocks;
        tap_offset(p, 0, decode_tap(p, 0, tap), offset[j]);
        channel[j] = w.group * (int)p.channels + channel_block * SLAB_ROWS + tap_block.first_column;
        if (tap_block.index >= (int)p.tap_blocks) {  // beyond the last block: load any valid channels, whose accumulators are not stored
            channel[j] = 0;
            #pragma unroll
            for (int d = 0; d < 3; ++d) offset[j][d] = 0;
        }
    }
    const int no_offset[3] = {0, 0, 0}, row = w.group * (int)p.rows[0] + w.tile_m * TILE_M;
    const Pixel by = decode_pixel(p, 0, STAGE_K);
    Pixel pixel = decode_pixel(p, 0, w.k_begin * STAGE_K);
    #pragma unroll 1
    for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
        int start[3];
        im2col_start(p, 0, pixel, start);
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        #pragma unroll
        for (int limb = 0; limb < OPERAND_LIMBS; ++limb) {
            const smem_addr_t limb_a = a + limb * (TILE_M / SLAB_ROWS * STAGE_K * SWIZZLE_BYTES);
            const smem_addr_t limb_b = b + limb * (LOADED_TAP_BLOCKS * STAGE_K * SWIZZLE_BYTES);
            #pragma unroll
            for (int j = 0; j < TILE_M / SLAB_ROWS; ++j)
                tma_load_im2col<SPATIAL>(
                    limb_a + j * STAGE_K * SWIZZLE_BYTES, p.dense_map[limb], barrier, row + j * SLAB_ROWS, pixel.n, pixel.coord, no_offset
                );
            #pragma unroll
            for (int j = 0; j < LOADED_TAP_BLOCKS; ++j)
                tma_load_im2col<SPATIAL>(
                    limb_b + j * STAGE_K * SWIZZLE_BYTES, p.im2col_map[limb], barrier, channel[j], pixel.n, start, offset[j]
                );
        }
        advance_pixel(p, 0, pixel, by);
    }
}

