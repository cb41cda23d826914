// Sums leave the registers of tensor cores: to the epilogue, or as partial sums of a split product.
//
// ROW_PAIR_EPILOGUE: rows are channels, and channels are neighbours in the result. A lane has single rows, eight apart, so it changes
// one of them for a row of another lane and stores two neighbours of each pixel: 32 bytes of a pixel by eight lanes.
//
// A thread stores neighbouring channels. Tensor cores leave it two columns of each eight. For more of them either the
// filter's rows lie permuted in shared memory (PERMUTE_N: the copy takes them in another order), or the four lanes of a row
// exchange sums. Results whose rows begin anywhere take two at most: four lanes store what tensor cores left them side by side.

constexpr int MMA_TILES_M = TILE_M / (64 * CONSUMER_WARPGROUPS), ACCUMS = TILE_N / 2;  // 64s of rows of a warpgroup, sums of a thread in each
[[maybe_unused]] constexpr int COLUMN_BLOCKS = (TILE_N + 31) / 32;  // of columns

[[maybe_unused]] constexpr bool EXCHANGE_LANES = !PERMUTE_N && VEC_N > 2;
[[maybe_unused]] constexpr bool ROW_PAIR_EPILOGUE = SWAP_AB && VEC_N == 2;
[[maybe_unused]] constexpr int EPILOGUE_CALLS_PER_PAIR = VEC_WIDTH == 1 ? 2 : 1;  // calls of the epilogue for a pair

// Lane 4g + q of a warp holds, of row g, columns 2q and 2q + 1 of four groups of eight: `v[2 * group + i]`. Afterwards
// it holds columns 8q to 8q + 7 of the 32.
__device__ __forceinline__ void exchange_lanes(Accum (&v)[8]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    #pragma unroll
    for (int group = 0; group < 4; group += 2)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accum &even_one = v[2 * group + i], &odd_one = v[2 * group + 2 + i];
            const Accum other = __shfl_xor_sync(0xffffffffu, odd ? even_one : odd_one, 1);
            if (odd) even_one = other; else odd_one = other;
        }
    #pragma unroll
    for (int group = 0; group < 2; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accum &low_one = v[2 * group + i], &high_one = v[2 * group + 4 + i];
            const Accum other = __shfl_xor_sync(0xffffffffu, high ? low_one : high_one, 2);
            if (high) low_one = other; else high_one = other;
        }
}

// Whether all pixels are one axis of the result, which Params then say (p.joined).
template <class Fields> constexpr auto has_flat_pixels(int) -> decltype(&Fields::flat_pixels, true) { return true; }
template <class Fields> constexpr bool has_flat_pixels(long) { return false; }
constexpr bool FLAT_PIXELS = has_flat_pixels<Params>(0);

// Where a pixel of a forward-like product lies in the result. SWAP_AB: an image's pixels are one axis.
__device__ __forceinline__ void out_pixel_coord(const Params& p, const WorkTile& w, int number, int (&at)[6]) {
    at[1] = w.group;
    if constexpr (FLAT_PIXELS) {
        at[5] = number;
    } else if constexpr (SWAP_AB) {
        at[0] = number / (int)p.image_pixels;
        at[5] = number - at[0] * (int)p.image_pixels;
    } else {
        const Pixel pixel = decode_pixel(p, w.residue, number);
        at[0] = pixel.n;
        #pragma unroll
        for (int d = 0; d < 3; ++d)
            at[3 + d] = (int)p.out_start[w.residue * 3 + d] + pixel.at[d] * (int)p.out_stride[d];
    }
}

// A row of the product: all of a result's coordinates that its columns do not change. SWAP_AB and wgrad: a channel.
__device__ __forceinline__ void out_row_coord(const Params& p, const WorkTile& w, int row, int (&at)[6]) {
    #pragma unroll
    for (int d = 0; d < 6; ++d) at[d] = 0;
    if constexpr (WGRAD) {
        at[0] = w.group;
        at[1] = row;
    } else if constexpr (SWAP_AB) {
        at[1] = w.group;
        at[2] = row;
    } else {
        out_pixel_coord(p, w, row, at);
    }
}

// RowCoords of the result that a thread holds of each 64: two. Where they are, and whether they are there at all; those that
// are not read what the last one reads, and store nothing.
struct RowCoords { int at[2][6]; bool is_inside[2]; };

__device__ __forceinline__ RowCoords row_coords_at(const Params& p, const WorkTile& w, int in_tile) {
    const int all = SWAP_AB ? (int)p.columns : (int)p.rows[w.residue], tile = SWAP_AB ? w.tile_n : w.tile_m;
    RowCoords found;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = tile * TILE_M + in_tile + 8 * h;
        found.is_inside[h] = row < all;
        out_row_coord(p, w, row < all ? row : all - 1, found.at[h]);
    }
    return found;
}

__device__ __forceinline__ RowCoords row_coords(const Params& p, const WorkTile& w, int consumer, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    return row_coords_at(p, w, (consumer * MMA_TILES_M + j) * 64 + warp * 16 + lane / 4);
}

// A thread's neighbouring columns of one row are a piece: 8 of each 32 columns, VEC_N together. Where they are in the
// result, VEC_WIDTH at a time; what is not there reads the first column and stores nothing.
struct FragmentSlice { int at[8 / VEC_WIDTH][6]; bool is_there[8 / VEC_WIDTH]; };

// Of neighbours from `place` on, of which those before `limit` are there.
__device__ __forceinline__ FragmentSlice fragment_slice_at(
    const Params& p, const WorkTile& w, const RowCoords& rows, const Tap& tap, int place, int limit, int h
) {
    FragmentSlice piece;
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
        const int first = i * VEC_WIDTH;
        const int here = place + first / VEC_N * (4 * VEC_N) + first % VEC_N;
        const bool is_inside = here < limit;
        #pragma unroll
        for (int d = 0; d < 6; ++d) piece.at[i][d] = WGRAD && d >= 3 ? tap.at[d < 3 ? 0 : d - 3] : rows.at[h][d];
        if constexpr (SWAP_AB) out_pixel_coord(p, w, is_inside ? here : 0, piece.at[i]);
        else piece.at[i][2] = is_inside ? here : 0;
        piece.is_there[i] = is_inside && rows.is_inside[h];
    }
    return piece;
}

// 64 columns of a filter gradient's tile: channels of a tap from `first` on, those before `limit`.
struct TapColumns { Tap tap; int first, limit; };

__device__ __forceinline__ TapColumns tap_columns(const Params& p, int tile_n, int j) {
    const TapBlock unit = decode_tap_block(tile_n, j);
    const bool is_unit = unit.number < (int)p.tap_blocks;
    const int number = unit.number / (int)p.channel_blocks;
    const int first = (unit.number - number * (int)p.channel_blocks) * SLAB_ROWS + unit.first;
    const int limit = !is_unit ? 0 : TAIL_COLUMNS == 0 ? (int)p.channels : min((int)p.channels, first + unit.columns);
    return {decode_tap(p, 0, is_unit ? number : 0), first, limit};
}

// RowCoords with a tile's columns, where these take divisions: they are known before the sums are.
template <bool WITH_COLUMNS> struct EpilogueCoordsOf : RowCoords {};
template <> struct EpilogueCoordsOf<true> : RowCoords { TapColumns columns[LOADED_TAP_BLOCKS]; };
using EpilogueCoords = EpilogueCoordsOf<WGRAD>;

__device__ __forceinline__ void set_tap_columns(const Params&, const WorkTile&, RowCoords&) {}
__device__ __forceinline__ void set_tap_columns(const Params& p, const WorkTile& w, EpilogueCoordsOf<true>& rows) {
    #pragma unroll
    for (int i = 0; i < LOADED_TAP_BLOCKS; ++i) rows.columns[i] = tap_columns(p, w.tile_n, i);
}
__device__ __forceinline__ EpilogueCoords epilogue_coords(const Params& p, const WorkTile& w, int consumer, int j) {
    EpilogueCoords found;
    (RowCoords&)found = row_coords(p, w, consumer, j);
    set_tap_columns(p, w, found);
    return found;
}

__device__ __forceinline__ FragmentSlice fragment_slice(const Params& p, const WorkTile& w, const RowCoords& rows, int block, int h) {
    const int in_tile = block * 32 + (int)threadIdx.x % 4 * VEC_N;
    if constexpr (WGRAD) {
        const TapColumns column = tap_columns(p, w.tile_n, in_tile / SLAB_ROWS);
        return fragment_slice_at(p, w, rows, column.tap, column.first + in_tile % SLAB_ROWS, column.limit, h);
    }
    const int limit = SWAP_AB ? (int)p.rows[w.residue] : (int)p.columns;
    return fragment_slice_at(p, w, rows, Tap{}, (SWAP_AB ? w.tile_m : w.tile_n) * TILE_N + in_tile, limit, h);
}
__device__ __forceinline__ FragmentSlice fragment_slice(const Params& p, const WorkTile& w, const EpilogueCoordsOf<true>& rows, int block, int h) {
    const TapColumns& column = rows.columns[LOADED_TAP_BLOCKS > 1 ? block * 32 / SLAB_ROWS : 0];
    const int in_panel = block * 32 % SLAB_ROWS + (int)threadIdx.x % 4 * VEC_N;
    return fragment_slice_at(p, w, rows, column.tap, column.first + in_panel, column.limit, h);
}

// What the epilogue reads once for all rows of a block of columns.
struct EpilogueOperands { ColumnOperands kept[8 / VEC_WIDTH]; };

__device__ __forceinline__ void load_epilogue_operands(const Params& p, const FragmentSlice& piece, EpilogueOperands& held) {
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) load_column_operands(p, piece.at[i], held.kept[i]);
}

__device__ __forceinline__ void store_fragment(const Params& p, const FragmentSlice& piece, const EpilogueOperands& held, Accum (&v)[8]) {
    if constexpr (EXCHANGE_LANES) exchange_lanes(v);
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
        Accum acc[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = v[i * VEC_WIDTH + e];
        epilogue(p, piece.at[i], held.kept[i], acc, piece.is_there[i]);
    }
}

// A thread's sums of one of its two rows, out of those of 32 columns.
__device__ __forceinline__ void row_fragment(Accum (&v)[8], const Accum* sum, int h) {
    #pragma unroll
    for (int group = 0; group < 4; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) v[2 * group + i] = sum[4 * group + 2 * h + i];
}

// Whether there are registers beside a thread's sums, to hold what both its rows read.
[[maybe_unused]] constexpr bool SPARE_REGISTERS = MMA_TILES_M * ACCUMS < 96 || MMA_TILES_M * ACCUMS + 80 < CONSUMER_REGS;

// Those of 32 columns; where a tile ends before, zeros.
struct ColumnBlock { Accum at[16]; };
template <int COUNT> __device__ __forceinline__ ColumnBlock column_block(const Accum (&sum)[COUNT], int block) {
    ColumnBlock found;
    #pragma unroll
    for (int i = 0; i < 16; ++i) found.at[i] = COUNT % 16 == 0 || block * 16 + i < COUNT ? sum[block * 16 + i] : Accum(0);
    return found;
}

// The sums of 64 rows through the epilogue: COUNT blocks of 32 columns, each 16 sums of two rows.
// `bring(held, block, h)` adds to what the epilogue keeps for one of the two rows.
struct NoResidual { __device__ __forceinline__ void operator()(EpilogueOperands&, int, int) const {} };

// One block: two rows of a thread. `is_kept`: what the epilogue keeps for both was read ahead.
template <class Where, class LoadResidual>
__device__ __forceinline__ void store_column_block(
    const Params& p, const WorkTile& w, const Where& rows, int block, const Accum* sum, EpilogueOperands& held, bool is_kept, const LoadResidual& bring
) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const FragmentSlice piece = fragment_slice(p, w, rows, block, h);
        if (!SPARE_REGISTERS || (h == 0 && !is_kept)) load_epilogue_operands(p, piece, held);
        bring(held, block, h);
        Accum v[8];
        row_fragment(v, sum, h);
        store_fragment(p, piece, held, v);
    }
}

template <int COUNT, class Where, class LoadResidual = NoResidual>
__device__ __forceinline__ void epilogue_store(
    const Params& p, const WorkTile& w, const Where& rows, int first_block, const Accum (&sum)[16 * COUNT],
    const LoadResidual& bring = LoadResidual()
) {
    #pragma unroll
    for (int block = 0; block < COUNT; ++block) {
        EpilogueOperands held;
        store_column_block(p, w, rows, first_block + block, sum + block * 16, held, false, bring);
    }
}

// ROW_PAIR_EPILOGUE: the same sums, by two channels of a pixel. All images' pixels are one axis of the result. What is not `is_live` goes
// the same way and stores nothing. `bring(held, channel, pixel)`: as above, for a pair's place in the tile.
template <class LoadResidual>
__device__ __forceinline__ void epilogue_store_row_pairs(
    const Params& p, const WorkTile& w, int consumer, int j, bool is_live, const Accum (&sum)[ACCUMS], const LoadResidual& bring
) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const bool is_odd = lane / 4 & 1;
    const int channel = (consumer * MMA_TILES_M + j) * 64 + warp * 16 + lane / 4 - is_odd + 8 * is_odd, row = w.tile_n * TILE_M + channel;
    const int pixels = is_live ? (int)p.rows[w.residue] : 0;
    EpilogueOperands held;
    int at[EPILOGUE_CALLS_PER_PAIR][6];
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) at[i][d] = 0;
        at[i][2] = row + i < (int)p.columns ? row + i : 0;
        load_column_operands(p, at[i], held.kept[i]);
    }
    #pragma unroll
    for (int n = 0; n < ACCUMS / 2; ++n) {  // columns of a lane
        const Accum low = sum[n / 2 * 4 + n % 2], high = sum[n / 2 * 4 + n % 2 + 2];
        const Accum other = __shfl_xor_sync(0xffffffffu, is_odd ? low : high, 4);
        const Accum pair[2] = {is_odd ? other : low, is_odd ? high : other};
        const int in_tile = lane % 4 * 2 + n / 2 * 8 + n % 2, pixel = w.tile_m * TILE_N + in_tile;
        bring(held, channel, in_tile);
        #pragma unroll
        for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = pair[i * VEC_WIDTH + e];
            at[i][5] = pixel < pixels ? pixel : 0;
            epilogue(p, at[i], held.kept[i], acc, pixel < pixels && row + i < (int)p.columns);
        }
    }
}
