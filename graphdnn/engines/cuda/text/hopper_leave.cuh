// Sums leave the registers of tensor cores: to the epilogue, or as partial sums of a split product.
//
// A thread stores neighbouring channels. Tensor cores leave it two columns of each eight, so either the filter's rows lie
// permuted in shared memory (PERMUTED: the copy takes them in another order), or the four lanes of a row exchange sums.

constexpr int MI = BM / (64 * CONSUMERS), SUMS = BN / 2;  // 64s of rows of a warpgroup, sums of a thread in each

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

// Where a pixel of a forward-like product lies in the result. TURNED: an image's pixels are one axis.
__device__ __forceinline__ void pixel_coordinates(const Params& p, const Work& w, int number, int (&at)[6]) {
    at[1] = w.group;
    if constexpr (TURNED) {
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

__device__ __forceinline__ Rows rows_of(const Params& p, const Work& w, int consumer, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const int all = TURNED ? (int)p.columns : (int)p.rows[w.residue], tile = TURNED ? w.tile_n : w.tile_m;
    Rows found;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = tile * BM + (consumer * MI + j) * 64 + warp * 16 + lane / 4 + 8 * h;
        found.is_inside[h] = row < all;
        row_coordinates(p, w, row < all ? row : all - 1, found.at[h]);
    }
    return found;
}

// 32 columns of a thread's two rows through the epilogue, NEIGHBOURS at a time: those of a part follow those of all
// lanes' parts before it.
__device__ __forceinline__ void leave(const Params& p, const Work& w, Rows& rows, int block, const Accumulator (&sum)[16]) {
    const int column = (TURNED ? w.tile_m : w.tile_n) * BN + block * 32 + (int)threadIdx.x % 4 * NEIGHBOURS;
    int place = column, limit = TURNED ? (int)p.rows[w.residue] : (int)p.columns;
    if constexpr (WGRAD) {
        const int unit = column / PANEL, number = unit / (int)p.channel_blocks;
        const Tap tap = tap_of(p, 0, unit < (int)p.units ? number : 0);
        place = (unit - number * (int)p.channel_blocks) * PANEL + column % PANEL;
        limit = unit < (int)p.units ? (int)p.channels : 0;
        #pragma unroll
        for (int h = 0; h < 2; ++h)
            #pragma unroll
            for (int d = 0; d < 3; ++d) rows.at[h][3 + d] = tap.at[d];
    }
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        Accumulator v[8];
        #pragma unroll
        for (int group = 0; group < 4; ++group)
            #pragma unroll
            for (int i = 0; i < 2; ++i) v[2 * group + i] = sum[4 * group + 2 * h + i];
        if constexpr (!PERMUTED) gather_neighbours(v);
        #pragma unroll
        for (int first = 0; first < 8; first += WIDTH) {
            const int here = place + first / NEIGHBOURS * (4 * NEIGHBOURS) + first % NEIGHBOURS;
            const bool is_there = here < limit;
            if constexpr (TURNED) pixel_coordinates(p, w, is_there ? here : 0, rows.at[h]);
            else rows.at[h][2] = is_there ? here : 0;
            Accumulator acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = v[first + e];
            epilogue(p, rows.at[h], acc, is_there && rows.is_inside[h]);
        }
    }
}

// Rows of the epilogue's operands that are as large as the result: the second level of cache fetches a tile's while the
// block multiplies.
template <class Fields>  // those of AHEAD operands, if there are any
__device__ __forceinline__ void fetch_ahead(const Fields& p, const Work& w) {
    if constexpr (AHEAD > 0) {
        #pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            for (int column = 0; column < BN; column += (int)p.ahead_columns[i])
                if (w.tile_n * BN + column < (int)p.columns)
                    fetch_box(p.ahead[i], w.group * (int)p.columns + w.tile_n * BN + column, w.tile_m * BM);
    }
}

// Partial sums lie as threads hold them: [part][tile][consumer][j][block][quarter][thread] of four.
__device__ __forceinline__ long long partial_at(const Params& p, int part, int tile, int consumer, int j, int block) {
    const long long piece = ((long long)part * (int)p.tiles + tile) * CONSUMERS + consumer;
    return (((piece * MI + j) * (BN / 32) + block) * 4 * 128 + threadIdx.x % 128) * 4;
}

