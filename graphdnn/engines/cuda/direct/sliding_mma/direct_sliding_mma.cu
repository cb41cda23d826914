// Direct convolution with few channels per group on tensor cores, fprop and dgrad.
//
// The walk is that of direct.cu: rows pass through a ring in shared memory, a window of sums stays in registers. A warp
// owns 2 * PAIRS channels of 16 tiles of TW = 4 output columns, side by side. A product takes two channels at a time:
//
//   rows      the tiles
//   depth     (column of the tile's input, channel): 8 or 4 columns
//   columns   (column of the tile's output, channel): its matrix holds the filter, shifted along the columns
//
// so of a depthwise filter's products S in 8 * CHUNKS count, the others are with zeros. Lane 4 * g + j reads and ends
// with column j of tiles g and g + 8: for unit stride a lane is a pixel. Finished rows pass through shared memory once
// more, so that memory is written in long pieces.
//
// A weight that is not there is 0, but 0 times infinity is not: a block that finds NaN among its results computes them
// all again, one by one.

constexpr int OWN = 2 * PAIRS;                      // channels of a lane
constexpr int CHANNELS = OWN * WARPS;               // of a block
constexpr int WITH = GROUP <= 2 ? 1 : GROUP / 2;    // pairs of input channels that a pair of output channels meets
constexpr int CHUNKS = (IW + TW - 1) / TW;          // of TW columns, of a tile's input
constexpr int WIDE = (TILES - 1) * STEP_W + CHUNKS * TW;
constexpr int SLAB = CHANNELS * GROUP * R * S;      // filter elements of a block
constexpr int PIXEL = CHANNELS + (CHANNELS / 8 % 2 ? 0 : 8);  // neighbours are in different banks
typedef Ring<Gathered, ROWS * IN_ROWS, WIDE, CHANNELS, 8, STAGES, PIXEL> Rows;  // ROWS steps at a time
static_assert(TW == 4 && WIDE >= COLUMNS && sizeof(Gathered) == 2 && CHANNELS % 8 == 0, "pairs of 16-bit floats");

// Finished rows in shared memory: threads that follow each other take the pieces of a pixel.
constexpr int PIECE = 16 / (int)sizeof(Out), PIECES = CHANNELS / PIECE;
constexpr int PLACE = CHANNELS + (PIECES % 2 ? 0 : PIECE);  // from pixel to pixel, in different banks
constexpr int LINES = ROWS * OUT_ROWS, COLUMNS_OUT = TILES * TW;
constexpr int BATCH = THREADS / PIECES;             // pixels that are written at once
constexpr int TIMES = (LINES * COLUMNS_OUT + BATCH - 1) / BATCH;
constexpr int HALL = LINES * COLUMNS_OUT * PLACE;
static_assert(CHANNELS % PIECE == 0 && THREADS % PIECES == 0, "whole pieces");
constexpr int SLAB_BYTES = (SLAB * (int)sizeof(Gathered) + 15) / 16 * 16;

// The block's part of a filter element's place: output channel `o` and input channel `i` of the block.
__device__ __forceinline__ int filter_offset(const Params& p, int o, int i, int r, int s) {
    const int k = DGRAD ? i % GROUP : o % GROUP, c = DGRAD ? o % GROUP : i % GROUP;
    return o / GROUP * (GROUP * GROUP * R * S) + k * (int)p.filter_k + c * (int)p.filter_c +
        (FLIP ? R - 1 - r : r) * (int)p.filter_r + (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

__device__ __forceinline__ int within(int i, int size) { return i < 0 ? 0 : i < size ? i : size - 1; }

// One output from memory, the plain way. `o`: its channel in the block.
__device__ __forceinline__ float exact_sum(
    const Params& p, const Gathered* slab, int n, int channel0, int o, int h, int w
) {
    float sum = 0.0f;
    const int group = o / GROUP * GROUP;
    #pragma unroll 1
    for (int tap = 0; tap < R * S; ++tap) {
        const int r = tap / S, s = tap % S;
        int row = DGRAD ? h + (int)p.pad_h - r : h * STRIDE_H - (int)p.pad_h + r;
        int column = DGRAD ? w + (int)p.pad_w - s : w * STRIDE_W - (int)p.pad_w + s;
        if (DGRAD && (row % STRIDE_H != 0 || column % STRIDE_W != 0)) continue;
        if (DGRAD) row /= STRIDE_H, column /= STRIDE_W;
        if ((unsigned int)row >= (unsigned int)p.in_h || (unsigned int)column >= (unsigned int)p.in_w) continue;
        const Gathered* const pixel =
            p.gathered + n * p.gathered_n + row * p.gathered_h + column * p.gathered_w + channel0;
        #pragma unroll 1
        for (int i = group; i < group + GROUP; ++i)
            sum = fmaf(widen<float>(pixel[i]), widen<float>(slab[filter_offset(p, o, i, r, s)]), sum);
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_sliding_mma(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Gathered* const slab = (Gathered*)(memory + Rows::BYTES);
    Out* const hall = (Out*)(memory + Rows::BYTES + SLAB_BYTES);

    unsigned int block = blockIdx.x;
    const int channel_block = (int)(block % (unsigned int)p.channel_blocks);
    block /= (unsigned int)p.channel_blocks;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int first = (int)(block % (unsigned int)p.segments * (unsigned int)p.segment_rows);
    const int n = (int)(block / (unsigned int)p.segments);
    const int last = first + (int)p.segment_rows < (int)p.rows ? first + (int)p.segment_rows : (int)p.rows;
    const int steps = last - first + EXTRA;
    const int row0 = (DGRAD ? first - EXTRA : first) * IN_ROWS + (int)p.in_row;

    // Steps whose rows all lie above the image add nothing to empty sums.
    const int above = row0 < 0 ? -row0 / IN_ROWS : 0;
    const int start = above < EXTRA ? above : EXTRA;
    const int channel0 = channel_block * CHANNELS;
    const int column0 = column_block * COLUMNS_OUT + (int)p.out_column;

    Rows ring(memory);
    ring.start(
        p.gathered + n * p.gathered_n, p.gathered_h, p.gathered_w, (int)p.in_h, (int)p.in_w, (int)p.channels,
        row0 + start * IN_ROWS, column_block * TILES * STEP_W + BEFORE + (int)p.in_column, channel0
    );
    {  // the block's filters as they lie in memory
        const Gathered* source = p.filter + (long long)channel_block * SLAB;
        const long long left = p.filter_elements - (long long)channel_block * SLAB;
        for (int i = threadIdx.x * FILTER_CHUNK; i < SLAB; i += THREADS * FILTER_CHUNK)
            copy_async<FILTER_CHUNK * (int)sizeof(Gathered)>(slab + i, i < left ? source + i : p.filter, i < left);
    }
    commit_copies();
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (start + i * ROWS < steps) ring.fetch(i);
        commit_copies();
    }

    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4, warp = (int)threadIdx.x / 32;
    const int local = OWN * warp;

    await_copies<STAGES - 1>();
    __syncthreads();
    unsigned int weight[R][PAIRS][WITH][CHUNKS];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int q = 0; q < PAIRS; ++q)
            #pragma unroll
            for (int with = 0; with < WITH; ++with)
                #pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk) {
                    const int o = local + 2 * q + g % 2, s = column_tap(chunk * TW + j, g / 2);
                    unsigned int both = 0;
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const int i = local + 2 * (q / WITH * WITH + with) + e;
                        if (s >= 0 && o / GROUP == i / GROUP)
                            both |= (unsigned int)slab[filter_offset(p, o, i, r, s)].bits << 16 * e;
                    }
                    weight[r][q][with][chunk] = both;
                }

    float sum[WINDOW][PAIRS][4];
    #pragma unroll
    for (int k = 0; k < WINDOW; ++k)
        #pragma unroll
        for (int q = 0; q < PAIRS; ++q)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[k][q][e] = 0.0f;

    // Rows that the steps from `step` on have finished, from shared memory.
    const int piece = (int)threadIdx.x % PIECES, mine = (int)threadIdx.x / PIECES;
    const bool writes = channel0 + piece * PIECE < (int)p.channels;
    Out* const image = p.output + n * p.output_n + channel0 + piece * PIECE;
    auto leave = [&](const Out* from, int step) {
        #pragma unroll
        for (int i = 0; i < TIMES; ++i) {
            const int pixel = mine + i * BATCH, line = pixel / COLUMNS_OUT, done = step + line / OUT_ROWS;
            const int column = column0 + pixel - line * COLUMNS_OUT;
            const int out = (first + done - EXTRA) * OUT_ROWS + line % OUT_ROWS + (int)p.out_row;
            if (writes && (LINES * COLUMNS_OUT % BATCH == 0 || pixel < LINES * COLUMNS_OUT) && done >= EXTRA &&
                done < steps && (OUT_ROWS == 1 || (unsigned int)out < (unsigned int)p.out_h) &&
                (unsigned int)column < (unsigned int)p.out_w)
                store_vec<PIECE>(
                    image + out * p.output_h + column * (int)p.output_w,
                    load_vec<PIECE>(from + pixel * PLACE + piece * PIECE)
                );
        }
    };

    // Lanes without a pixel take one that is there through the epilogue, and nobody writes it.
    const int channel_at = within(channel0 + local, (int)p.channels - OWN + 1);
    const int column_at[2] = {
        within(column0 + lane, (int)p.out_w), within(column0 + 32 + lane, (int)p.out_w)
    };
    // For tiles that are not there the last one is read: behind it lie rows on their way, and rows that others write.
    const int nearest = TILES >= 8 ? g : within(g, TILES);
    const int apart = ((TILES >= 16 ? g + 8 : within(g + 8, TILES)) - nearest) * STEP_W * PIXEL;
    ColumnOperands kept[OWN / WIDTH];
    #pragma unroll
    for (int v = 0; v < OWN; v += WIDTH) {
        const int at[4] = {n, channel_at + v, 0, column_at[0]};
        load_column_operands(p, at, kept[v / WIDTH]);
    }
    // Finite as long as all results were: products of neighbours are added to it.
    float probe = 0.0f;
    // Unknown to the compiler, but 0: operands of products are then written once, into registers side by side.
    const unsigned int nothing = (unsigned int)p.nothing;
    int slot = 0, parity = 0;
    #pragma unroll 1
    for (int turn = start; turn < steps; turn += ROWS) {
        await_copies<STAGES - 2>();
        __syncthreads();  // these rows are there for all, and all have left those that are overwritten next
        if (turn + (STAGES - 1) * ROWS < steps) ring.fetch(slot == 0 ? STAGES - 1 : slot - 1);
        commit_copies();
        const Gathered* const here = ring.at(slot, 0, nearest * STEP_W + j, local);
        Vec<unsigned int, PAIRS> words[CHUNKS][2];  // of tiles g and g + 8
        auto load = [&](int row) {
            #pragma unroll
            for (int chunk = 0; chunk < CHUNKS; ++chunk)
                #pragma unroll
                for (int m = 0; m < 2; ++m)
                    words[chunk][m] = load_vec<PAIRS>(
                        (const unsigned int*)(here + (row * WIDE + chunk * TW) * PIXEL + m * apart)
                    );
        };
        load(0);
        if (turn != start) leave(hall + (parity ^ 1) * HALL, turn - ROWS);

        Out* const to = hall + parity * HALL + lane * PLACE + local;
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        parity ^= 1;
        #pragma unroll
        for (int line = 0; line < ROWS; ++line) {
            #pragma unroll
            for (int u = 0; u < IN_ROWS; ++u) {
                if (u >= R) continue;
                unsigned int x[PAIRS][(CHUNKS + 1) / 2][4];
                #pragma unroll
                for (int q = 0; q < PAIRS; ++q)
                    #pragma unroll
                    for (int chunk = 0; chunk < CHUNKS; ++chunk)
                        #pragma unroll
                        for (int m = 0; m < 2; ++m) x[q][chunk / 2][chunk % 2 * 2 + m] = words[chunk][m].at[q] ^ nothing;
                if (line * IN_ROWS + u + 1 < ROWS * IN_ROWS && (u + 1 < R || line + 1 < ROWS))
                    load(u + 1 < R && u + 1 < IN_ROWS ? line * IN_ROWS + u + 1 : (line + 1) * IN_ROWS);
                #pragma unroll
                for (int k = 0; k < WINDOW; ++k) {
                    const int r = row_tap(u, k);
                    if (r < 0) continue;
                    #pragma unroll
                    for (int chunk = 0; chunk < CHUNKS; chunk += 2)
                        #pragma unroll
                        for (int with = 0; with < WITH; ++with)
                            #pragma unroll
                            for (int q = 0; q < PAIRS; ++q) {
                                const unsigned int(&of)[4] = x[q / WITH * WITH + with][chunk / 2];
                                const int next = chunk + 1 < CHUNKS ? chunk + 1 : chunk;
                                if (chunk + 1 < CHUNKS)
                                    warp_product<Gathered, true>(
                                        sum[k][q], of[0], of[1], of[2], of[3], weight[r][q][with][chunk],
                                        weight[r][q][with][next]
                                    );
                                else
                                    warp_product<Gathered, false>(
                                        sum[k][q], of[0], of[1], 0, 0, weight[r][q][with][chunk], 0
                                    );
                            }
                }
            }
            // Rows are complete: they leave the window, and it moves on. What they are before the first is not read.
            #pragma unroll
            for (int k = 0; k < OUT_ROWS; ++k)
                #pragma unroll
                for (int m = 0; m < 2; ++m) {
                    if (8 * m + 8 > TILES && 8 * m + g >= TILES) continue;
                    #pragma unroll
                    for (int q = 0; q < PAIRS; ++q) probe = fmaf(sum[k][q][2 * m], sum[k][q][2 * m + 1], probe);
                    Vec<Out, OWN> pack;
                    #pragma unroll
                    for (int v = 0; v < OWN; v += WIDTH) {
                        const int row = (first + turn + line - EXTRA) * OUT_ROWS + k + (int)p.out_row;
                        const int at[4] = {n, channel_at + v, within(row, (int)p.out_h), column_at[m]};
                        float acc[WIDTH];
                        #pragma unroll
                        for (int e = 0; e < WIDTH; ++e) acc[e] = sum[k][(v + e) / 2][2 * m + (v + e) % 2];
                        Out result[WIDTH];
                        epilogue(p, at, kept[v / WIDTH], acc, result);
                        #pragma unroll
                        for (int e = 0; e < WIDTH; ++e) pack.at[v + e] = result[e];
                    }
                    store_vec<OWN>(to + ((line * OUT_ROWS + k) * COLUMNS_OUT + 32 * m) * PLACE, pack);
                }
            #pragma unroll
            for (int k = 0; k < WINDOW; ++k)
                #pragma unroll
                for (int q = 0; q < PAIRS; ++q)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sum[k][q][e] = k + OUT_ROWS < WINDOW ? sum[k + OUT_ROWS < WINDOW ? k + OUT_ROWS : 0][q][e] : 0.0f;
        }
    }
    await_copies<0>();
    const bool strange = __syncthreads_or(probe != probe);
    const int turns = (steps - start + ROWS - 1) / ROWS;
    if (turns > 0) leave(hall + (parity ^ 1) * HALL, start + (turns - 1) * ROWS);
    if (!strange) return;
    __syncthreads();  // what follows is written over the last rows
    Out* const image0 = p.output + n * p.output_n + channel0;
    const int height = (last - first) * OUT_ROWS, fours = CHANNELS / WIDTH;
    #pragma unroll 1
    for (int i = threadIdx.x; i < height * COLUMNS_OUT * fours; i += THREADS) {
        const int own = i % fours * WIDTH, column = column0 + i / fours % COLUMNS_OUT;
        const int out = first * OUT_ROWS + i / (fours * COLUMNS_OUT) + (int)p.out_row;
        if ((unsigned int)out >= (unsigned int)p.out_h || (unsigned int)column >= (unsigned int)p.out_w ||
            channel0 + own >= (int)p.channels)
            continue;
        const int at[4] = {n, channel0 + own, out, column};
        float acc[WIDTH] = {};
        #pragma unroll 1
        for (int which = 0; which < WIDTH; ++which) {
            const float exact = exact_sum(p, slab, n, channel0, own + which, out, column);
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = e == which ? exact : acc[e];
        }
        ColumnOperands of_these;
        load_column_operands(p, at, of_these);
        Out result[WIDTH];
        epilogue(p, at, of_these, acc, result);
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) image0[out * p.output_h + column * (int)p.output_w + own + e] = result[e];
    }
}
