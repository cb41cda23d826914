// A block's work on a convolution as a product: which tile, which pixels and taps, and the copies that bring them.
//
//                 rows        columns          k
//   forward-like  pixel       channel          taps, channels     a: pixels, along k   b: filter, along k or across
//   turned        channel     pixel            taps, channels     a: filter            b: pixels
//   wgrad         channel     taps, channels   pixels             a, b: pixels, across k
//
// A strided dgrad is a product for each residue of the positions modulo the stride, all in one launch.

[[maybe_unused]] constexpr int BK = ROW / (int)sizeof(Element);
constexpr int PANEL = 64;  // rows of a panel
// A tile's part of the gathered side (pixels of a forward-like product) and of the other. TURNED: pixels are the columns.
[[maybe_unused]] constexpr int HELD_M = TURNED ? BN : BM, HELD_N = TURNED ? BM : BN;

// The remainder, and the quotient in place of the number. Unsigned division takes fewer instructions.
__device__ __forceinline__ int take(int& number, int size) {
    const unsigned int all = number, quotient = all / (unsigned int)size;
    number = (int)quotient;
    return (int)(all - quotient * (unsigned int)size);
}

// Of so many steps those of a part; the first parts have one more. One short division, as this is ahead of the first copy.
__device__ __forceinline__ void steps_of_part(int steps, int part, int parts, int& first, int& last) {
    const int longer = take(steps, parts);
    first = part * steps + min(part, longer);
    last = first + steps + (part < longer);
}

// A block's piece of work.
struct Work {
    int residue, group, tile_m, tile_n, tile;
    int first, last;  // steps of k
};

// Rows of tiles that are walked side by side, column after column, where Params say so (p.band); else one.
template <class Fields> __device__ __forceinline__ auto band_of(const Fields& p, int) -> decltype((int)p.band) {
    return (int)p.band;
}
template <class Fields> __device__ __forceinline__ int band_of(const Fields&, long) { return 1; }

__device__ __forceinline__ Work work_of(const Params& p, int number) {
    Work w;
    int part = number;
    w.tile = SPLIT ? take(part, (int)p.tiles) : number;
    w.residue = 0;
    #pragma unroll
    for (int i = 1; i < RESIDUES; ++i)
        if (w.tile >= (int)p.first_tile[i]) w.residue = i;
    int rest = w.tile - (int)p.first_tile[w.residue];
    const int across = (int)p.tiles_n, down = (int)p.tiles_m[w.residue];
    const int band = band_of(p, 0);
    if (band == 1) {
        w.tile_n = take(rest, across);
        w.tile_m = take(rest, down);
        w.group = rest;
    } else {
        int in_group = take(rest, across * down);
        w.group = rest;
        int in_band = take(in_group, across * band);
        const int above = in_group * band;
        w.tile_m = above + take(in_band, min(band, down - above));
        w.tile_n = in_band;
    }
    w.first = 0;
    w.last = (int)p.depth[w.residue];
    if (SPLIT) steps_of_part(w.last, part, (int)p.parts, w.first, w.last);
    return w;
}

// Number of a pixel -> where it is: spatial coordinates outermost first, and n.
struct Pixel { int at[3], n; };

__device__ __forceinline__ Pixel pixel_of(const Params& p, int residue, int number) {
    Pixel found;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        if (d < 3 - SPATIAL) found.at[d] = 0;
        else found.at[d] = take(number, (int)p.pixels[residue * 3 + d]);
    }
    found.n = number;
    return found;
}

// So many pixels on, as a place: no division, which would stand between a free stage and its copies.
__device__ __forceinline__ void step_on(const Params& p, int residue, Pixel& pixel, const Pixel& by) {
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

__device__ __forceinline__ Tap tap_of(const Params& p, int residue, int number) {
    Tap found;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        if (d < 3 - SPATIAL) found.at[d] = 0;
        else found.at[d] = take(number, (int)p.taps[residue * 3 + d]);
    }
    return found;
}

__device__ __forceinline__ void next_tap(const Params& p, int residue, Tap& tap) {
    #pragma unroll
    for (int d = 2; d >= 3 - SPATIAL; --d) {
        if (++tap.at[d] < (int)p.taps[residue * 3 + d]) return;
        tap.at[d] = 0;
    }
}

// How far a tap shifts the walk through the gathered image.
__device__ __forceinline__ void offset_of(const Params& p, int residue, const Tap& tap, int (&offset)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        offset[d] = d < 3 - SPATIAL ? 0 : (int)p.tap_origin[residue * 3 + d] + tap.at[d] * (int)p.tap_step[d];
}

__device__ __forceinline__ void gathered_start(const Params& p, int residue, const Pixel& pixel, int (&start)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        start[d] = d < 3 - SPATIAL ? 0 : pixel.at[d] * (int)p.pixel_step[d] + (int)p.lowest[residue * 3 + d];
}

// The number of a map of so many alike. Where a group's channels end within a row of 128 bytes each group has its own, which end
// there too, so that no row reaches into the next group (p.own_maps: of groups).
template <class Fields>
__device__ __forceinline__ auto map_of(const Fields& p, const Work& w, int number, int) -> decltype((int)p.own_maps) {
    return number * (int)p.own_maps + w.group;
}
template <class Fields> __device__ __forceinline__ int map_of(const Fields&, const Work&, int number, long) { return number; }

// The stages of one piece of work, in order: `slot(a, b, barrier)` waits for a free one.
template <class Slot> __device__ __forceinline__ void fill_forward(const Params& p, const Work& w, Slot slot) {
    const int blocks = (int)p.channel_blocks, channels = (int)p.channels;
    int start[3], offset[3];
    const Pixel pixel = pixel_of(p, w.residue, w.tile_m * HELD_M);
    gathered_start(p, w.residue, pixel, start);
    Tap tap = SPLIT ? tap_of(p, w.residue, w.first / blocks) : Tap{};
    int block = SPLIT ? w.first % blocks : 0;
    const int column = w.tile_n * HELD_N;
    const int of_image = map_of(p, w, w.residue, 0), of_filter = ACROSS_FILTER ? map_of(p, w, 0, 0) : 0;
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        offset_of(p, w.residue, tap, offset);
        int in_filter = (int)p.filter_start[w.residue];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += tap.at[d] * (int)p.filter_step[d];
        const int summed = w.group * channels + block * BK;
        shared_t a, b, barrier;
        slot(a, b, barrier);  // the first one waits for the launch before, when all else is known
        const shared_t image = TURNED ? b : a, filter = TURNED ? a : b;
        copy_pixels<SPATIAL>(image, p.gathered[of_image], barrier, summed, pixel.n, start, offset);
        if constexpr (ACROSS_FILTER) {
            #pragma unroll
            for (int j = 0; j < HELD_N / PANEL; ++j)
                copy_box(filter + j * PANEL_BYTES, p.plain[of_filter], barrier, column + j * PANEL, in_filter, summed);
        } else {
            const int row = w.group * (int)p.columns + column;
            if constexpr (PERMUTED)
                copy_box(
                    filter, p.plain[0], barrier, in_filter * (int)p.tap_pitch + block * BK, 0, 0, 0, row / (4 * NEIGHBOURS)
                );
            else copy_box(filter, p.plain[0], barrier, block * BK, in_filter, row);
        }
        if (++block == blocks) block = 0, next_tap(p, w.residue, tap);
    }
}

// Columns of a filter gradient are units: PANEL channels of the image, seen through one tap. A tile has WHOLE_UNITS, and where
// these do not make BN columns, a SHARE of one more, which SHARERS neighbouring tiles have together: behind all their own.
[[maybe_unused]] constexpr int WHOLE_UNITS = BN / PANEL, SHARE = BN % PANEL, SHARERS = SHARE > 0 ? PANEL / SHARE : 1;
[[maybe_unused]] constexpr int UNITS_TAKEN = WHOLE_UNITS + (SHARE > 0);

struct Unit { int number, first, columns; };  // which one, and what of it is a tile's

__device__ __forceinline__ Unit unit_of(int tile_n, int j) {
    if (SHARE == 0) return {tile_n * WHOLE_UNITS + j, 0, PANEL};
    int sharing = tile_n;
    const int mate = take(sharing, SHARERS), first = sharing * (SHARERS * WHOLE_UNITS + 1);
    if (j < WHOLE_UNITS) return {first + mate * WHOLE_UNITS + j, 0, PANEL};
    return {first + SHARERS * WHOLE_UNITS, mate * SHARE, SHARE};
}

// Of operands in PLANES, each with maps of its own, one plane behind the other; a step is DEEP pixels.
template <int PLANES = 1, int DEEP = PANEL, class Slot>
__device__ __forceinline__ void fill_wgrad(const Params& p, const Work& w, Slot slot) {
    int channel[UNITS_TAKEN], offset[UNITS_TAKEN][3];
    #pragma unroll
    for (int j = 0; j < UNITS_TAKEN; ++j) {
        const Unit unit = unit_of(w.tile_n, j);
        const int number = unit.number / (int)p.channel_blocks, block = unit.number - number * (int)p.channel_blocks;
        offset_of(p, 0, tap_of(p, 0, number), offset[j]);
        channel[j] = w.group * (int)p.channels + block * PANEL + unit.first;
        if (unit.number >= (int)p.units) {  // beyond the last: any that is there, nobody reads the sums
            channel[j] = 0;
            #pragma unroll
            for (int d = 0; d < 3; ++d) offset[j][d] = 0;
        }
    }
    const int none[3] = {0, 0, 0}, row = w.group * (int)p.rows[0] + w.tile_m * BM;
    const Pixel by = pixel_of(p, 0, DEEP);
    Pixel pixel = pixel_of(p, 0, w.first * DEEP);
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        int start[3];
        gathered_start(p, 0, pixel, start);
        shared_t a, b, barrier;
        slot(a, b, barrier);
        #pragma unroll
        for (int plane = 0; plane < PLANES; ++plane) {
            const shared_t rows = a + plane * (BM / PANEL * DEEP * ROW), columns = b + plane * (UNITS_TAKEN * DEEP * ROW);
            #pragma unroll
            for (int j = 0; j < BM / PANEL; ++j)
                copy_pixels<SPATIAL>(
                    rows + j * DEEP * ROW, p.plain[plane], barrier, row + j * PANEL, pixel.n, pixel.at, none
                );
            #pragma unroll
            for (int j = 0; j < UNITS_TAKEN; ++j)
                copy_pixels<SPATIAL>(
                    columns + j * DEEP * ROW, p.gathered[plane], barrier, channel[j], pixel.n, start, offset[j]
                );
        }
        step_on(p, 0, pixel, by);
    }
}

