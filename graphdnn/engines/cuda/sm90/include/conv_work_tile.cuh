// A block's work on a convolution as a product: which tile, which pixels and taps, and the copies that bring them.
//
//                 rows        columns          k
//   forward-like  pixel       channel          taps, channels     a: pixels, along k   b: filter, along k or across
//   turned        channel     pixel            taps, channels     a: filter            b: pixels
//   wgrad         channel     taps, channels   pixels             a, b: pixels, across k
//
// A strided dgrad is a product for each residue of the positions modulo the stride, all in one launch.

[[maybe_unused]] constexpr int TILE_K = SWIZZLE_BYTES / (int)sizeof(Element);
constexpr int SLAB_ROWS = 64;  // rows of a panel
// A tile's part of the gathered side (pixels of a forward-like product) and of the other. SWAP_AB: pixels are the columns.
[[maybe_unused]] constexpr int TILE_PIXELS = SWAP_AB ? TILE_N : TILE_M, TILE_CHANNELS = SWAP_AB ? TILE_M : TILE_N;

// The remainder, and the quotient in place of the number. Unsigned division takes fewer instructions.
__device__ __forceinline__ int divmod_inplace(int& number, int size) {
    const unsigned int all = number, quotient = all / (unsigned int)size;
    number = (int)quotient;
    return (int)(all - quotient * (unsigned int)size);
}

// Of so many steps those of a part; the first parts have one more. One short division, as this is ahead of the first copy.
__device__ __forceinline__ void split_range(int steps, int part, int splits, int& first, int& last) {
    const int longer = divmod_inplace(steps, splits);
    first = part * steps + min(part, longer);
    last = first + steps + (part < longer);
}

// A block's piece of work.
struct WorkTile {
    int residue, group, tile_m, tile_n, tile;
    int first, last;  // steps of k
};

// RowCoords of tiles that are walked side by side, column after column, where Params say so (p.band); else one.
template <class Fields> __device__ __forceinline__ auto raster_width_of(const Fields& p, int) -> decltype((int)p.raster_width) {
    return (int)p.raster_width;
}
template <class Fields> __device__ __forceinline__ int raster_width_of(const Fields&, long) { return 1; }

__device__ __forceinline__ WorkTile decode_work_tile(const Params& p, int number) {
    WorkTile w;
    int part = number;
    w.tile = SPLIT_K ? divmod_inplace(part, (int)p.tiles) : number;
    w.residue = 0;
    #pragma unroll
    for (int i = 1; i < RESIDUES; ++i)
        if (w.tile >= (int)p.first_tile[i]) w.residue = i;
    int rest = w.tile - (int)p.first_tile[w.residue];
    const int across = (int)p.tiles_n, down = (int)p.tiles_m[w.residue];
    const int raster_width = raster_width_of(p, 0);
    if (raster_width == 1) {
        w.tile_n = divmod_inplace(rest, across);
        w.tile_m = divmod_inplace(rest, down);
        w.group = rest;
    } else {
        int in_group = divmod_inplace(rest, across * down);
        w.group = rest;
        int in_band = divmod_inplace(in_group, across * raster_width);
        const int above = in_group * raster_width;
        w.tile_m = above + divmod_inplace(in_band, min(raster_width, down - above));
        w.tile_n = in_band;
    }
    w.first = 0;
    w.last = (int)p.depth[w.residue];
    if (SPLIT_K) split_range(w.last, part, (int)p.splits, w.first, w.last);
    return w;
}

// Number of a pixel -> where it is: spatial coordinates outermost first, and n.
struct Pixel { int at[3], n; };

__device__ __forceinline__ Pixel decode_pixel(const Params& p, int residue, int number) {
    Pixel found;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        if (d < 3 - SPATIAL) found.at[d] = 0;
        else found.at[d] = divmod_inplace(number, (int)p.pixels[residue * 3 + d]);
    }
    found.n = number;
    return found;
}

// So many pixels on, as a place: no division, which would stand between a free stage and its copies.
__device__ __forceinline__ void advance_pixel(const Params& p, int residue, Pixel& pixel, const Pixel& by) {
    int carry = 0;
    #pragma unroll
    for (int d = 2; d >= 3 - SPATIAL; --d) {
        const int size = (int)p.pixels[residue * 3 + d], at = pixel.at[d] + by.at[d] + carry;
        carry = at >= size;
        pixel.at[d] = carry ? at - size : at;
    }
    pixel.n += by.n + carry;
}

// A tap by its number, the last axis fastest.
struct Tap { int at[3]; };

__device__ __forceinline__ Tap decode_tap(const Params& p, int residue, int number) {
    Tap found;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        if (d < 3 - SPATIAL) found.at[d] = 0;
        else found.at[d] = divmod_inplace(number, (int)p.taps[residue * 3 + d]);
    }
    return found;
}

__device__ __forceinline__ void advance_tap(const Params& p, int residue, Tap& tap) {
    #pragma unroll
    for (int d = 2; d >= 3 - SPATIAL; --d) {
        if (++tap.at[d] < (int)p.taps[residue * 3 + d]) return;
        tap.at[d] = 0;
    }
}

// How far a tap shifts the walk through the gathered image.
__device__ __forceinline__ void tap_offset(const Params& p, int residue, const Tap& tap, int (&offset)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        offset[d] = d < 3 - SPATIAL ? 0 : (int)p.tap_origin[residue * 3 + d] + tap.at[d] * (int)p.dilation[d];
}

__device__ __forceinline__ void im2col_start(const Params& p, int residue, const Pixel& pixel, int (&start)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        start[d] = d < 3 - SPATIAL ? 0 : pixel.at[d] * (int)p.traversal_stride[d] + (int)p.lowest[residue * 3 + d];
}

// The number of a map of so many alike. Where a group's channels end within a row of 128 bytes each group has its own, which end
// there too, so that no row reaches into the next group (p.maps_per_group: of groups).
template <class Fields>
__device__ __forceinline__ auto map_index(const Fields& p, const WorkTile& w, int number, int) -> decltype((int)p.maps_per_group) {
    return number * (int)p.maps_per_group + w.group;
}
template <class Fields> __device__ __forceinline__ int map_index(const Fields&, const WorkTile&, int number, long) { return number; }

// The stages of one piece of work, in order: `slot(a, b, barrier)` waits for a free one.
template <class Acquire> __device__ __forceinline__ void load_forward_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    const int blocks = (int)p.channel_blocks, channels = (int)p.channels;
    int start[3], offset[3];
    const Pixel pixel = decode_pixel(p, w.residue, w.tile_m * TILE_PIXELS);
    im2col_start(p, w.residue, pixel, start);
    Tap tap = SPLIT_K ? decode_tap(p, w.residue, w.first / blocks) : Tap{};
    int block = SPLIT_K ? w.first % blocks : 0;
    const int column = w.tile_n * TILE_CHANNELS;
    const int of_image = map_index(p, w, w.residue, 0), of_filter = FILTER_MN_MAJOR ? map_index(p, w, 0, 0) : 0;
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        tap_offset(p, w.residue, tap, offset);
        int in_filter = (int)p.filter_start[w.residue];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += tap.at[d] * (int)p.filter_step[d];
        const int summed = w.group * channels + block * TILE_K;
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);  // the first one waits for the launch before, when all else is known
        const smem_addr_t image = SWAP_AB ? b : a, filter = SWAP_AB ? a : b;
        tma_load_im2col<SPATIAL>(image, p.im2col_map[of_image], barrier, summed, pixel.n, start, offset);
        if constexpr (FILTER_MN_MAJOR) {
            #pragma unroll
            for (int j = 0; j < TILE_CHANNELS / SLAB_ROWS; ++j)
                tma_load_tile(filter + j * SLAB_BYTES, p.dense_map[of_filter], barrier, column + j * SLAB_ROWS, in_filter, summed);
        } else {
            const int row = w.group * (int)p.columns + column;
            if constexpr (PERMUTE_N)
                tma_load_tile(
                    filter, p.dense_map[0], barrier, in_filter * (int)p.tap_stride + block * TILE_K, 0, 0, 0, row / (4 * VEC_N)
                );
            else tma_load_tile(filter, p.dense_map[0], barrier, block * TILE_K, in_filter, row);
        }
        if (++block == blocks) block = 0, advance_tap(p, w.residue, tap);
    }
}

// Columns of a filter gradient are units: SLAB_ROWS channels of the image, seen through one tap. A tile has WHOLE_TAP_BLOCKS, and where
// these do not make TILE_N columns, a TAIL_COLUMNS of one more, which TAIL_SHARERS neighbouring tiles have together: behind all their own.
[[maybe_unused]] constexpr int WHOLE_TAP_BLOCKS = TILE_N / SLAB_ROWS, TAIL_COLUMNS = TILE_N % SLAB_ROWS, TAIL_SHARERS = TAIL_COLUMNS > 0 ? SLAB_ROWS / TAIL_COLUMNS : 1;
[[maybe_unused]] constexpr int LOADED_TAP_BLOCKS = WHOLE_TAP_BLOCKS + (TAIL_COLUMNS > 0);

struct TapBlock { int number, first, columns; };  // which one, and what of it is a tile's

__device__ __forceinline__ TapBlock decode_tap_block(int tile_n, int j) {
    if (TAIL_COLUMNS == 0) return {tile_n * WHOLE_TAP_BLOCKS + j, 0, SLAB_ROWS};
    int sharing = tile_n;
    const int mate = divmod_inplace(sharing, TAIL_SHARERS), first = sharing * (TAIL_SHARERS * WHOLE_TAP_BLOCKS + 1);
    if (j < WHOLE_TAP_BLOCKS) return {first + mate * WHOLE_TAP_BLOCKS + j, 0, SLAB_ROWS};
    return {first + TAIL_SHARERS * WHOLE_TAP_BLOCKS, mate * TAIL_COLUMNS, TAIL_COLUMNS};
}

// Of operands in PLANES, each with maps of its own, one plane behind the other; a step is STAGE_K pixels.
template <int PLANES = 1, int STAGE_K = SLAB_ROWS, class Acquire>
__device__ __forceinline__ void load_wgrad_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    int channel[LOADED_TAP_BLOCKS], offset[LOADED_TAP_BLOCKS][3];
    #pragma unroll
    for (int j = 0; j < LOADED_TAP_BLOCKS; ++j) {
        const TapBlock unit = decode_tap_block(w.tile_n, j);
        const int number = unit.number / (int)p.channel_blocks, block = unit.number - number * (int)p.channel_blocks;
        tap_offset(p, 0, decode_tap(p, 0, number), offset[j]);
        channel[j] = w.group * (int)p.channels + block * SLAB_ROWS + unit.first;
        if (unit.number >= (int)p.tap_blocks) {  // beyond the last: any that is there, nobody reads the sums
            channel[j] = 0;
            #pragma unroll
            for (int d = 0; d < 3; ++d) offset[j][d] = 0;
        }
    }
    const int none[3] = {0, 0, 0}, row = w.group * (int)p.rows[0] + w.tile_m * TILE_M;
    const Pixel by = decode_pixel(p, 0, STAGE_K);
    Pixel pixel = decode_pixel(p, 0, w.first * STAGE_K);
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        int start[3];
        im2col_start(p, 0, pixel, start);
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        #pragma unroll
        for (int plane = 0; plane < PLANES; ++plane) {
            const smem_addr_t rows = a + plane * (TILE_M / SLAB_ROWS * STAGE_K * SWIZZLE_BYTES), columns = b + plane * (LOADED_TAP_BLOCKS * STAGE_K * SWIZZLE_BYTES);
            #pragma unroll
            for (int j = 0; j < TILE_M / SLAB_ROWS; ++j)
                tma_load_im2col<SPATIAL>(
                    rows + j * STAGE_K * SWIZZLE_BYTES, p.dense_map[plane], barrier, row + j * SLAB_ROWS, pixel.n, pixel.at, none
                );
            #pragma unroll
            for (int j = 0; j < LOADED_TAP_BLOCKS; ++j)
                tma_load_im2col<SPATIAL>(
                    columns + j * STAGE_K * SWIZZLE_BYTES, p.im2col_map[plane], barrier, channel[j], pixel.n, start, offset[j]
                );
        }
        advance_pixel(p, 0, pixel, by);
    }
}

