// Epilogue of wgmma kernels: accumulators pass through the generated function `epilogue`, which stores results.
//
// Fragments:  lane 4g + q of a warp accumulates rows g and g + 8 of 16, and columns 2q and 2q + 1 of every eight. A column block has
//             32 columns; a thread has 8 accumulators of each of its two rows there.
// Vectors:    a thread stores VEC_N contiguous columns, in vectors of VEC_WIDTH. With VEC_N > 2, either the filter's rows are
//             permuted when TMA loads them (PERMUTE_N), or the four lanes of a row exchange accumulators (EXCHANGE_LANES).
//             Results whose rows are not aligned have VEC_N = 2.
// Row pairs:  ROW_PAIR_EPILOGUE, with SWAP_AB: rows are channels, which are contiguous in the result. A lane has single rows, eight
//             apart. It exchanges one of them with another lane, and stores two channels of each pixel: eight lanes store 32 bytes.
//
// Required constants (from the generator), besides those of conv_work_tile.cuh:
//   CONSUMER_WARPGROUPS   warpgroups that share a tile
//   CONSUMER_REGS         registers of a consumer thread
//   VEC_WIDTH             elements of one store, 1 to VEC_N
//   FLAT_PIXELS           the pixels of all images are one axis of the result
//   type Accum            of the accumulators: float or int
//   functions load_column_operands, which reads what a column shares (bias, scale), and epilogue, with type ColumnOperands

#include "conv_work_tile.cuh"

constexpr int MMA_TILES_M = TILE_M / (64 * CONSUMER_WARPGROUPS), ACCUMS = TILE_N / 2;  // 64-row MMA tiles of a warpgroup; accumulators of a thread in each
[[maybe_unused]] constexpr int COLUMN_BLOCKS = (TILE_N + 31) / 32;

[[maybe_unused]] constexpr bool EXCHANGE_LANES = !PERMUTE_N && VEC_N > 2;
[[maybe_unused]] constexpr bool ROW_PAIR_EPILOGUE = SWAP_AB && VEC_N == 2;
[[maybe_unused]] constexpr int EPILOGUE_CALLS_PER_PAIR = VEC_WIDTH == 1 ? 2 : 1;

// Before: lane 4g + q has columns 2q and 2q + 1 of four groups of eight, as `v[2 * group + i]`. After: it has columns 8q to 8q + 7 of
// the column block.
__device__ __forceinline__ void exchange_lanes(Accum (&v)[8]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    #pragma unroll
    for (int group = 0; group < 4; group += 2)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accum &even_value = v[2 * group + i], &odd_value = v[2 * group + 2 + i];
            const Accum received = __shfl_xor_sync(0xffffffffu, odd ? even_value : odd_value, 1);
            if (odd) even_value = received; else odd_value = received;
        }
    #pragma unroll
    for (int group = 0; group < 2; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accum &low_value = v[2 * group + i], &high_value = v[2 * group + 4 + i];
            const Accum received = __shfl_xor_sync(0xffffffffu, high ? low_value : high_value, 2);
            if (high) low_value = received; else high_value = received;
        }
}

// Coordinates of the result are (n, group, channel, d, h, w); of a filter gradient, (group, k, c, d, h, w).
// Sets those of a pixel. With SWAP_AB, the pixels of an image are one axis, w.
__device__ __forceinline__ void out_pixel_coord(const Params& p, const WorkTile& w, int pixel_index, int (&coord)[6]) {
    coord[1] = w.group;
    if constexpr (FLAT_PIXELS) {
        coord[5] = pixel_index;
    } else if constexpr (SWAP_AB) {
        coord[0] = pixel_index / (int)p.image_pixels;
        coord[5] = pixel_index - coord[0] * (int)p.image_pixels;
    } else {
        const Pixel pixel = decode_pixel(p, w.residue, pixel_index);
        coord[0] = pixel.n;
        #pragma unroll
        for (int d = 0; d < 3; ++d)
            coord[3 + d] = (int)p.out_start[w.residue * 3 + d] + pixel.coord[d] * (int)p.out_stride[d];
    }
}

// Sets the coordinates that a row of the GEMM has in all columns. Rows are channels with SWAP_AB and WGRAD, pixels otherwise.
__device__ __forceinline__ void out_row_coord(const Params& p, const WorkTile& w, int row, int (&coord)[6]) {
    #pragma unroll
    for (int d = 0; d < 6; ++d) coord[d] = 0;
    if constexpr (WGRAD) {
        coord[0] = w.group;
        coord[1] = row;
    } else if constexpr (SWAP_AB) {
        coord[1] = w.group;
        coord[2] = row;
    } else {
        out_pixel_coord(p, w, row, coord);
    }
}

// The two rows of a thread in an MMA tile. A row outside the GEMM has the coordinates of the last row: its operands are read from
// valid addresses, and nothing is stored.
struct RowCoords { int coord[2][6]; bool is_inside[2]; };

__device__ __forceinline__ RowCoords row_coords_at(const Params& p, const WorkTile& w, int row_in_tile) {
    const int row_count = SWAP_AB ? (int)p.columns : (int)p.rows[w.residue], tile = SWAP_AB ? w.tile_n : w.tile_m;
    RowCoords rows;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = tile * TILE_M + row_in_tile + 8 * h;
        rows.is_inside[h] = row < row_count;
        out_row_coord(p, w, row < row_count ? row : row_count - 1, rows.coord[h]);
    }
    return rows;
}

__device__ __forceinline__ RowCoords row_coords(const Params& p, const WorkTile& w, int consumer, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    return row_coords_at(p, w, (consumer * MMA_TILES_M + j) * 64 + warp * 16 + lane / 4);
}

// A thread's 8 columns of one row and one column block, as vectors of VEC_WIDTH. A vector outside the GEMM has the coordinates of
// column 0, and nothing is stored.
struct FragmentSlice { int coord[8 / VEC_WIDTH][6]; bool is_inside[8 / VEC_WIDTH]; };

// `column`: the first column of the thread; columns from `limit` on are outside.
__device__ __forceinline__ FragmentSlice fragment_slice_at(
    const Params& p, const WorkTile& w, const RowCoords& rows, const Tap& tap, int column, int limit, int h
) {
    FragmentSlice slice;
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
        const int first = i * VEC_WIDTH;
        const int vec_column = column + first / VEC_N * (4 * VEC_N) + first % VEC_N;
        const bool is_inside = vec_column < limit;
        #pragma unroll
        for (int d = 0; d < 6; ++d) slice.coord[i][d] = WGRAD && d >= 3 ? tap.coord[d < 3 ? 0 : d - 3] : rows.coord[h][d];
        if constexpr (SWAP_AB) out_pixel_coord(p, w, is_inside ? vec_column : 0, slice.coord[i]);
        else slice.coord[i][2] = is_inside ? vec_column : 0;
        slice.is_inside[i] = is_inside && rows.is_inside[h];
    }
    return slice;
}

// Columns of a filter gradient that belong to one tap block: channels [first, limit) of a tap.
struct TapColumns { Tap tap; int first, limit; };

__device__ __forceinline__ TapColumns tap_columns(const Params& p, int tile_n, int j) {
    const TapBlock tap_block = decode_tap_block(tile_n, j);
    const bool is_inside = tap_block.index < (int)p.tap_blocks;
    const int tap = tap_block.index / (int)p.channel_blocks;
    const int first = (tap_block.index - tap * (int)p.channel_blocks) * SLAB_ROWS + tap_block.first_column;
    const int limit = !is_inside ? 0 : TAIL_COLUMNS == 0 ? (int)p.channels : min((int)p.channels, first + tap_block.columns);
    return {decode_tap(p, 0, is_inside ? tap : 0), first, limit};
}

// RowCoords, and for a filter gradient the columns of the tile. Columns take divisions there, so they are computed before the
// accumulators are complete.
template <bool WITH_COLUMNS> struct EpilogueCoordsOf : RowCoords {};
template <> struct EpilogueCoordsOf<true> : RowCoords { TapColumns columns[LOADED_TAP_BLOCKS]; };
using EpilogueCoords = EpilogueCoordsOf<WGRAD>;

__device__ __forceinline__ void set_tap_columns(const Params&, const WorkTile&, RowCoords&) {}
__device__ __forceinline__ void set_tap_columns(const Params& p, const WorkTile& w, EpilogueCoordsOf<true>& coords) {
    #pragma unroll
    for (int i = 0; i < LOADED_TAP_BLOCKS; ++i) coords.columns[i] = tap_columns(p, w.tile_n, i);
}
__device__ __forceinline__ EpilogueCoords epilogue_coords(const Params& p, const WorkTile& w, int consumer, int j) {
    EpilogueCoords coords;
    (RowCoords&)coords = row_coords(p, w, consumer, j);
    set_tap_columns(p, w, coords);
    return coords;
}

// The slice of this thread in column block `block` and row `h` of its two.
__device__ __forceinline__ FragmentSlice fragment_slice(const Params& p, const WorkTile& w, const RowCoords& rows, int block, int h) {
    const int column_in_tile = block * 32 + (int)threadIdx.x % 4 * VEC_N;
    if constexpr (WGRAD) {
        const TapColumns columns = tap_columns(p, w.tile_n, column_in_tile / SLAB_ROWS);
        return fragment_slice_at(p, w, rows, columns.tap, columns.first + column_in_tile % SLAB_ROWS, columns.limit, h);
    }
    const int limit = SWAP_AB ? (int)p.rows[w.residue] : (int)p.columns;
    return fragment_slice_at(p, w, rows, Tap{}, (SWAP_AB ? w.tile_m : w.tile_n) * TILE_N + column_in_tile, limit, h);
}
__device__ __forceinline__ FragmentSlice fragment_slice(const Params& p, const WorkTile& w, const EpilogueCoordsOf<true>& coords, int block, int h) {
    const TapColumns& columns = coords.columns[LOADED_TAP_BLOCKS > 1 ? block * 32 / SLAB_ROWS : 0];
    const int column_in_slab = block * 32 % SLAB_ROWS + (int)threadIdx.x % 4 * VEC_N;
    return fragment_slice_at(p, w, coords, columns.tap, columns.first + column_in_slab, columns.limit, h);
}

// The operands that all rows of a column block share, for the columns of a thread.
struct EpilogueOperands { ColumnOperands columns[8 / VEC_WIDTH]; };

__device__ __forceinline__ void load_epilogue_operands(const Params& p, const FragmentSlice& slice, EpilogueOperands& operands) {
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) load_column_operands(p, slice.coord[i], operands.columns[i]);
}

// Passes a slice's accumulators through the epilogue.
__device__ __forceinline__ void store_fragment(const Params& p, const FragmentSlice& slice, const EpilogueOperands& operands, Accum (&v)[8]) {
    if constexpr (EXCHANGE_LANES) exchange_lanes(v);
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
        Accum acc[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = v[i * VEC_WIDTH + e];
        epilogue(p, slice.coord[i], operands.columns[i], acc, slice.is_inside[i]);
    }
}

// Selects row `h` of a thread's two rows from the 16 accumulators of a column block.
__device__ __forceinline__ void row_fragment(Accum (&v)[8], const Accum* accum, int h) {
    #pragma unroll
    for (int group = 0; group < 4; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) v[2 * group + i] = accum[4 * group + 2 * h + i];
}

// Whether a thread has registers for column operands besides its accumulators, so that both rows share one load of them.
[[maybe_unused]] constexpr bool SPARE_REGISTERS = MMA_TILES_M * ACCUMS < 96 || MMA_TILES_M * ACCUMS + 80 < CONSUMER_REGS;

// The accumulators of a column block. Where the tile ends within the block, the others are 0.
struct ColumnBlock { Accum accum[16]; };
template <int COUNT> __device__ __forceinline__ ColumnBlock column_block(const Accum (&accum)[COUNT], int block) {
    ColumnBlock result;
    #pragma unroll
    for (int i = 0; i < 16; ++i) result.accum[i] = COUNT % 16 == 0 || block * 16 + i < COUNT ? accum[block * 16 + i] : Accum(0);
    return result;
}

// A `load_residual(operands, block, h)` adds a row's elements of a residual to the column operands. This one adds none.
struct NoResidual { __device__ __forceinline__ void operator()(EpilogueOperands&, int, int) const {} };

// Stores both rows of a column block. `is_loaded`: `operands` has been loaded before.
template <class Coords, class LoadResidual>
__device__ __forceinline__ void store_column_block(
    const Params& p, const WorkTile& w, const Coords& rows, int block, const Accum* accum, EpilogueOperands& operands, bool is_loaded, const LoadResidual& load_residual
) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const FragmentSlice slice = fragment_slice(p, w, rows, block, h);
        if (!SPARE_REGISTERS || (h == 0 && !is_loaded)) load_epilogue_operands(p, slice, operands);
        load_residual(operands, block, h);
        Accum v[8];
        row_fragment(v, accum, h);
        store_fragment(p, slice, operands, v);
    }
}

// Stores COUNT column blocks of an MMA tile.
template <int COUNT, class Coords, class LoadResidual = NoResidual>
__device__ __forceinline__ void epilogue_store(
    const Params& p, const WorkTile& w, const Coords& rows, int first_block, const Accum (&accum)[16 * COUNT],
    const LoadResidual& load_residual = LoadResidual()
) {
    #pragma unroll
    for (int block = 0; block < COUNT; ++block) {
        EpilogueOperands operands;
        store_column_block(p, w, rows, first_block + block, accum + block * 16, operands, false, load_residual);
    }
}

// ROW_PAIR_EPILOGUE: stores an MMA tile by two channels of a pixel. The pixels of all images are one axis of the result. A call that
// is not `is_live` executes the same instructions and stores nothing. `load_residual(operands, channel, pixel)` takes the pair's
// coordinates in the tile.
template <class LoadResidual>
__device__ __forceinline__ void epilogue_store_row_pairs(
    const Params& p, const WorkTile& w, int consumer, int j, bool is_live, const Accum (&accum)[ACCUMS], const LoadResidual& load_residual
) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const bool is_odd = lane / 4 & 1;
    const int channel_in_tile = (consumer * MMA_TILES_M + j) * 64 + warp * 16 + lane / 4 - is_odd + 8 * is_odd, channel = w.tile_n * TILE_M + channel_in_tile;
    const int pixels = is_live ? (int)p.rows[w.residue] : 0;
    EpilogueOperands operands;
    int coord[EPILOGUE_CALLS_PER_PAIR][6];
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) coord[i][d] = 0;
        coord[i][2] = channel + i < (int)p.columns ? channel + i : 0;
        load_column_operands(p, coord[i], operands.columns[i]);
    }
    #pragma unroll
    for (int n = 0; n < ACCUMS / 2; ++n) {  // columns of a lane
        const Accum low = accum[n / 2 * 4 + n % 2], high = accum[n / 2 * 4 + n % 2 + 2];
        const Accum received = __shfl_xor_sync(0xffffffffu, is_odd ? low : high, 4);
        const Accum pair[2] = {is_odd ? received : low, is_odd ? high : received};
        const int pixel_in_tile = lane % 4 * 2 + n / 2 * 8 + n % 2, pixel = w.tile_m * TILE_N + pixel_in_tile;
        load_residual(operands, channel_in_tile, pixel_in_tile);
        #pragma unroll
        for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = pair[i * VEC_WIDTH + e];
            coord[i][5] = pixel < pixels ? pixel : 0;
            epilogue(p, coord[i], operands.columns[i], acc, pixel < pixels && channel + i < (int)p.columns);
        }
    }
}
