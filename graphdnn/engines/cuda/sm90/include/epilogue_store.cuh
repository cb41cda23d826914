// Sums leave the registers of tensor cores: to the epilogue, or as partial sums of a split product.
//
// PAIRED: rows are channels, and channels are neighbours in the result. A lane has single rows, eight apart, so it changes
// one of them for a row of another lane and stores two neighbours of each pixel: 32 bytes of a pixel by eight lanes.
//
// A thread stores neighbouring channels. Tensor cores leave it two columns of each eight. For more of them either the
// filter's rows lie permuted in shared memory (PERMUTED: the copy takes them in another order), or the four lanes of a row
// exchange sums. Results whose rows begin anywhere take two at most: four lanes store what tensor cores left them side by side.

constexpr int MI = BM / (64 * CONSUMERS), SUMS = BN / 2;  // 64s of rows of a warpgroup, sums of a thread in each
[[maybe_unused]] constexpr int BLOCKS_OF_TILE = (BN + 31) / 32;  // of columns

[[maybe_unused]] constexpr bool EXCHANGED = !PERMUTED && NEIGHBOURS > 2;
[[maybe_unused]] constexpr bool PAIRED = TURNED && NEIGHBOURS == 2;
[[maybe_unused]] constexpr int CALLS_OF_PAIR = WIDTH == 1 ? 2 : 1;  // calls of the epilogue for a pair

// Lane 4g + q of a warp holds, of row g, columns 2q and 2q + 1 of four groups of eight: `v[2 * group + i]`. Afterwards
// it holds columns 8q to 8q + 7 of the 32.
__device__ __forceinline__ void gather_neighbours(Accumulator (&v)[8]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    #pragma unroll
    for (int group = 0; group < 4; group += 2)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accumulator &even_one = v[2 * group + i], &odd_one = v[2 * group + 2 + i];
            const Accumulator other = __shfl_xor_sync(0xffffffffu, odd ? even_one : odd_one, 1);
            if (odd) even_one = other; else odd_one = other;
        }
    #pragma unroll
    for (int group = 0; group < 2; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accumulator &low_one = v[2 * group + i], &high_one = v[2 * group + 4 + i];
            const Accumulator other = __shfl_xor_sync(0xffffffffu, high ? low_one : high_one, 2);
            if (high) low_one = other; else high_one = other;
        }
}

// Whether all pixels are one axis of the result, which Params then say (p.joined).
template <class Fields> constexpr auto joins(int) -> decltype(&Fields::joined, true) { return true; }
template <class Fields> constexpr bool joins(long) { return false; }
constexpr bool JOINED = joins<Params>(0);

// Where a pixel of a forward-like product lies in the result. TURNED: an image's pixels are one axis.
__device__ __forceinline__ void pixel_coordinates(const Params& p, const Work& w, int number, int (&at)[6]) {
    at[1] = w.group;
    if constexpr (JOINED) {
        at[5] = number;
    } else if constexpr (TURNED) {
        at[0] = number / (int)p.image_pixels;
        at[5] = number - at[0] * (int)p.image_pixels;
    } else {
        const Pixel pixel = pixel_of(p, w.residue, number);
        at[0] = pixel.n;
        #pragma unroll
        for (int d = 0; d < 3; ++d)
            at[3 + d] = (int)p.first_pixel[w.residue * 3 + d] + pixel.at[d] * (int)p.pixel_pitch[d];
    }
}

// A row of the product: all of a result's coordinates that its columns do not change. TURNED and wgrad: a channel.
__device__ __forceinline__ void row_coordinates(const Params& p, const Work& w, int row, int (&at)[6]) {
    #pragma unroll
    for (int d = 0; d < 6; ++d) at[d] = 0;
    if constexpr (WGRAD) {
        at[0] = w.group;
        at[1] = row;
    } else if constexpr (TURNED) {
        at[1] = w.group;
        at[2] = row;
    } else {
        pixel_coordinates(p, w, row, at);
    }
}

// Rows of the result that a thread holds of each 64: two. Where they are, and whether they are there at all; those that
// are not read what the last one reads, and store nothing.
struct Rows { int at[2][6]; bool is_inside[2]; };

__device__ __forceinline__ Rows rows_from(const Params& p, const Work& w, int in_tile) {
    const int all = TURNED ? (int)p.columns : (int)p.rows[w.residue], tile = TURNED ? w.tile_n : w.tile_m;
    Rows found;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = tile * BM + in_tile + 8 * h;
        found.is_inside[h] = row < all;
        row_coordinates(p, w, row < all ? row : all - 1, found.at[h]);
    }
    return found;
}

__device__ __forceinline__ Rows rows_of(const Params& p, const Work& w, int consumer, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    return rows_from(p, w, (consumer * MI + j) * 64 + warp * 16 + lane / 4);
}

// A thread's neighbouring columns of one row are a piece: 8 of each 32 columns, NEIGHBOURS together. Where they are in the
// result, WIDTH at a time; what is not there reads the first column and stores nothing.
struct Piece { int at[8 / WIDTH][6]; bool is_there[8 / WIDTH]; };

// Of neighbours from `place` on, of which those before `limit` are there.
__device__ __forceinline__ Piece piece_from(
    const Params& p, const Work& w, const Rows& rows, const Tap& tap, int place, int limit, int h
) {
    Piece piece;
    #pragma unroll
    for (int i = 0; i < 8 / WIDTH; ++i) {
        const int first = i * WIDTH;
        const int here = place + first / NEIGHBOURS * (4 * NEIGHBOURS) + first % NEIGHBOURS;
        const bool is_inside = here < limit;
        #pragma unroll
        for (int d = 0; d < 6; ++d) piece.at[i][d] = WGRAD && d >= 3 ? tap.at[d < 3 ? 0 : d - 3] : rows.at[h][d];
        if constexpr (TURNED) pixel_coordinates(p, w, is_inside ? here : 0, piece.at[i]);
        else piece.at[i][2] = is_inside ? here : 0;
        piece.is_there[i] = is_inside && rows.is_inside[h];
    }
    return piece;
}

// 64 columns of a filter gradient's tile: channels of a tap from `first` on, those before `limit`.
struct Column { Tap tap; int first, limit; };

__device__ __forceinline__ Column column_of(const Params& p, int tile_n, int j) {
    const Unit unit = unit_of(tile_n, j);
    const bool is_unit = unit.number < (int)p.units;
    const int number = unit.number / (int)p.channel_blocks;
    const int first = (unit.number - number * (int)p.channel_blocks) * PANEL + unit.first;
    const int limit = !is_unit ? 0 : SHARE == 0 ? (int)p.channels : min((int)p.channels, first + unit.columns);
    return {tap_of(p, 0, is_unit ? number : 0), first, limit};
}

// Rows with a tile's columns, where these take divisions: they are known before the sums are.
template <bool WITH_COLUMNS> struct PlacedRows : Rows {};
template <> struct PlacedRows<true> : Rows { Column columns[UNITS_TAKEN]; };
using Placed = PlacedRows<WGRAD>;

__device__ __forceinline__ void place_columns(const Params&, const Work&, Rows&) {}
__device__ __forceinline__ void place_columns(const Params& p, const Work& w, PlacedRows<true>& rows) {
    #pragma unroll
    for (int i = 0; i < UNITS_TAKEN; ++i) rows.columns[i] = column_of(p, w.tile_n, i);
}
__device__ __forceinline__ Placed placed_rows(const Params& p, const Work& w, int consumer, int j) {
    Placed found;
    (Rows&)found = rows_of(p, w, consumer, j);
    place_columns(p, w, found);
    return found;
}

__device__ __forceinline__ Piece piece_of(const Params& p, const Work& w, const Rows& rows, int block, int h) {
    const int in_tile = block * 32 + (int)threadIdx.x % 4 * NEIGHBOURS;
    if constexpr (WGRAD) {
        const Column column = column_of(p, w.tile_n, in_tile / PANEL);
        return piece_from(p, w, rows, column.tap, column.first + in_tile % PANEL, column.limit, h);
    }
    const int limit = TURNED ? (int)p.rows[w.residue] : (int)p.columns;
    return piece_from(p, w, rows, Tap{}, (TURNED ? w.tile_m : w.tile_n) * BN + in_tile, limit, h);
}
__device__ __forceinline__ Piece piece_of(const Params& p, const Work& w, const PlacedRows<true>& rows, int block, int h) {
    const Column& column = rows.columns[UNITS_TAKEN > 1 ? block * 32 / PANEL : 0];
    const int in_panel = block * 32 % PANEL + (int)threadIdx.x % 4 * NEIGHBOURS;
    return piece_from(p, w, rows, column.tap, column.first + in_panel, column.limit, h);
}

// What the epilogue reads once for all rows of a block of columns.
struct Held { Kept kept[8 / WIDTH]; };

__device__ __forceinline__ void keep_piece(const Params& p, const Piece& piece, Held& held) {
    #pragma unroll
    for (int i = 0; i < 8 / WIDTH; ++i) keep(p, piece.at[i], held.kept[i]);
}

__device__ __forceinline__ void leave(const Params& p, const Piece& piece, const Held& held, Accumulator (&v)[8]) {
    if constexpr (EXCHANGED) gather_neighbours(v);
    #pragma unroll
    for (int i = 0; i < 8 / WIDTH; ++i) {
        Accumulator acc[WIDTH];
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) acc[e] = v[i * WIDTH + e];
        epilogue(p, piece.at[i], held.kept[i], acc, piece.is_there[i]);
    }
}

// A thread's sums of one of its two rows, out of those of 32 columns.
__device__ __forceinline__ void row_of_sums(Accumulator (&v)[8], const Accumulator* sum, int h) {
    #pragma unroll
    for (int group = 0; group < 4; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) v[2 * group + i] = sum[4 * group + 2 * h + i];
}

// Whether there are registers beside a thread's sums, to hold what both its rows read.
[[maybe_unused]] constexpr bool SPARES_REGISTERS = MI * SUMS < 96 || MI * SUMS + 80 < MULTIPLYING_REGISTERS;

// Those of 32 columns; where a tile ends before, zeros.
struct Block { Accumulator at[16]; };
template <int COUNT> __device__ __forceinline__ Block block_of_sums(const Accumulator (&sum)[COUNT], int block) {
    Block found;
    #pragma unroll
    for (int i = 0; i < 16; ++i) found.at[i] = COUNT % 16 == 0 || block * 16 + i < COUNT ? sum[block * 16 + i] : Accumulator(0);
    return found;
}

// The sums of 64 rows through the epilogue: COUNT blocks of 32 columns, each 16 sums of two rows.
// `bring(held, block, h)` adds to what the epilogue keeps for one of the two rows.
struct BringsNothing { __device__ __forceinline__ void operator()(Held&, int, int) const {} };

// One block: two rows of a thread. `is_kept`: what the epilogue keeps for both was read ahead.
template <class Where, class Bring>
__device__ __forceinline__ void leave_block(
    const Params& p, const Work& w, const Where& rows, int block, const Accumulator* sum, Held& held, bool is_kept, const Bring& bring
) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const Piece piece = piece_of(p, w, rows, block, h);
        if (!SPARES_REGISTERS || (h == 0 && !is_kept)) keep_piece(p, piece, held);
        bring(held, block, h);
        Accumulator v[8];
        row_of_sums(v, sum, h);
        leave(p, piece, held, v);
    }
}

template <int COUNT, class Where, class Bring = BringsNothing>
__device__ __forceinline__ void leave_all(
    const Params& p, const Work& w, const Where& rows, int first_block, const Accumulator (&sum)[16 * COUNT],
    const Bring& bring = Bring()
) {
    #pragma unroll
    for (int block = 0; block < COUNT; ++block) {
        Held held;
        leave_block(p, w, rows, first_block + block, sum + block * 16, held, false, bring);
    }
}

// PAIRED: the same sums, by two channels of a pixel. All images' pixels are one axis of the result. What is not `is_real` goes
// the same way and stores nothing. `bring(held, channel, pixel)`: as above, for a pair's place in the tile.
template <class Bring>
__device__ __forceinline__ void leave_pairs(
    const Params& p, const Work& w, int consumer, int j, bool is_real, const Accumulator (&sum)[SUMS], const Bring& bring
) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const bool is_odd = lane / 4 & 1;
    const int channel = (consumer * MI + j) * 64 + warp * 16 + lane / 4 - is_odd + 8 * is_odd, row = w.tile_n * BM + channel;
    const int pixels = is_real ? (int)p.rows[w.residue] : 0;
    Held held;
    int at[CALLS_OF_PAIR][6];
    #pragma unroll
    for (int i = 0; i < CALLS_OF_PAIR; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) at[i][d] = 0;
        at[i][2] = row + i < (int)p.columns ? row + i : 0;
        keep(p, at[i], held.kept[i]);
    }
    #pragma unroll
    for (int n = 0; n < SUMS / 2; ++n) {  // columns of a lane
        const Accumulator low = sum[n / 2 * 4 + n % 2], high = sum[n / 2 * 4 + n % 2 + 2];
        const Accumulator other = __shfl_xor_sync(0xffffffffu, is_odd ? low : high, 4);
        const Accumulator pair[2] = {is_odd ? other : low, is_odd ? high : other};
        const int in_tile = lane % 4 * 2 + n / 2 * 8 + n % 2, pixel = w.tile_m * BN + in_tile;
        bring(held, channel, in_tile);
        #pragma unroll
        for (int i = 0; i < CALLS_OF_PAIR; ++i) {
            Accumulator acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = pair[i * WIDTH + e];
            at[i][5] = pixel < pixels ? pixel : 0;
            epilogue(p, at[i], held.kept[i], acc, pixel < pixels && row + i < (int)p.columns);
        }
    }
}
