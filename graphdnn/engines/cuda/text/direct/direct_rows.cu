// Depthwise convolution with unit stride, channels last, fprop and dgrad: short blocks without shared memory.
//
// A thread owns V channels of TW columns of ROWS rows. All rows that it reads are written out in the text, so that the
// compiler has loads of later rows under way while it adds those of earlier ones; what neighbouring threads read as well
// comes from the cache of their multiprocessor. Blocks follow each other in memory, few rows apart, and leave soon.

constexpr int IW = TW + S - 1;  // gathered columns of a thread
constexpr int IH = ROWS + R - 1;
constexpr bool BACKWARD = DGRAD != FLIP;  // the filter meets the image turned over
static_assert(V % WIDTH == 0 && V * R * S % FILTER_CHUNK == 0, "whole packs");

// The row that a block reads first, brought into the second level of cache while the launch before may still run: what
// that one writes passes the same cache, so nothing is read here. `line`: where the row begins, in the first column of the
// block's first thread, which asks for as many as the block has. More rows take memory's time from the launch before.
__device__ __forceinline__ void ask_for_row(const Params& p, Offset line, int row, int first_column) {
    if (threadIdx.x != 0 || (unsigned int)row >= (unsigned int)p.in_h) return;
    const int from = first_column > 0 ? first_column : 0, left = (int)p.in_w - from, columns = left < SPAN ? left : SPAN;
    const Gathered* const start = p.gathered + (line + (from - first_column) * (Offset)PITCH);
    if (columns <= 0) return;
    const int bytes = columns * PITCH * (int)sizeof(Gathered);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(start), "r"(bytes) : "memory");
#else
    (void)start, (void)bytes;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_rows(const __grid_constant__ Params p) {
    let_next_start();
    // Threads count lanes, then tiles of columns, blocks of rows, parts of a dilated image, and images.
    const unsigned int thread = blockIdx.x * THREADS + threadIdx.x;
    const unsigned int by_tile = quotient(thread, p.lanes, p.lanes_magic);
    const int channel = (int)(thread - by_tile * (unsigned int)p.lanes) * V;
    const unsigned int by_rows = quotient(by_tile, p.tiles, p.tiles_magic);
    const int column0 = (int)(by_tile - by_rows * (unsigned int)p.tiles) * TW;
    unsigned int rest = quotient(by_rows, p.row_blocks, p.row_blocks_magic);
    const int row0 = (int)(by_rows - rest * (unsigned int)p.row_blocks) * ROWS;
    const Remainder down = remainder_of((int)(rest % DILATION_H), (int)p.in_row, DILATION_H);
    rest /= DILATION_H;
    const Remainder across = remainder_of((int)(rest % DILATION_W), (int)p.in_column, DILATION_W);
    const int n = (int)(rest / DILATION_W);
    const int in_h = places((int)p.in_h, down.met, DILATION_H), in_w = places((int)p.in_w, across.met, DILATION_W);
    const int out_h = places((int)p.out_h, down.own, DILATION_H), out_w = places((int)p.out_w, across.own, DILATION_W);
    if (n >= (int)p.images) return;  // the last block may have threads too many

    const int first_row = row0 + down.shift - (DGRAD ? R - 1 : 0);
    const int first_column = column0 + across.shift - (DGRAD ? S - 1 : 0);
    // 32-bit places where the image allows them: a thread holds half as many registers of them.
    Offset line = n * (Offset)p.gathered_n + (first_row * DILATION_H + down.met) * (Offset)p.gathered_h +
        (first_column * DILATION_W + across.met) * (Offset)PITCH + channel;
    // From column to column is a number of the text: columns of a row then share one address, and loads say how much further.
    const Offset next_row = (Offset)p.gathered_h * DILATION_H;
    constexpr Offset next_column = (Offset)PITCH * DILATION_W;
    // Of the rows and columns, those that every tile has are not asked for.
    unsigned int inside = 0;
    #pragma unroll
    for (int c = 0; c < IW; ++c)
        if ((unsigned int)(first_column + c) < (unsigned int)in_w) inside |= 1u << c;

    if (ASKS && blockIdx.x < (unsigned int)p.first_blocks) ask_for_row(p, line - channel, first_row, first_column);
    wait_for_launch_before();
    // Never true. Loads of the read-only path, which the compiler takes to be of constants, would pass the wait; none passes
    // a place where threads may end.
    if (p.nothing != 0) return;

    Gathered pack[AHEAD + 1][IW][V];  // rows under way
    auto fetch = [&](int i) {
        const bool is_row = (SAFE_ROW_FROM <= i && i < SAFE_ROW_TO) || (unsigned int)(first_row + i) < (unsigned int)in_h;
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            const bool is_column = (SAFE_FROM <= c && c < SAFE_TO) || (inside >> c & 1u) != 0;
            load_if<V>(is_row && is_column, p.gathered + (line + c * next_column), pack[i % (AHEAD + 1)][c]);
        }
        line += next_row;
    };
    #pragma unroll
    for (int i = 0; i < AHEAD && i < IH; ++i) fetch(i);

    Accumulator weight[R][S][V];
    {
        const Filter* const from = p.filter + channel * (R * S);
        Pack<Filter, FILTER_CHUNK> piece[V * R * S / FILTER_CHUNK];
        #pragma unroll
        for (int i = 0; i < V * R * S / FILTER_CHUNK; ++i)
            piece[i] = load_pack_read_only<FILTER_CHUNK>(from + i * FILTER_CHUNK);
        #pragma unroll
        for (int r = 0; r < R; ++r)
            #pragma unroll
            for (int s = 0; s < S; ++s)
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                    const int at = v * (R * S) + (BACKWARD ? R - 1 - r : r) * FILTER_R + (BACKWARD ? S - 1 - s : s) * FILTER_S;
                    weight[r][s][v] = widen<Accumulator>(piece[at / FILTER_CHUNK].at[at % FILTER_CHUNK]);
                }
    }
    Kept kept[V / WIDTH];
    #pragma unroll
    for (int v = 0; v < V; v += WIDTH) {
        const int at[4] = {n, channel + v, 0, column0 * DILATION_W + across.own};
        keep(p, at, kept[v / WIDTH]);
    }

    Accumulator sum[R][TW][V];
    #pragma unroll
    for (int i = 0; i < IH; ++i) {
        if (i + AHEAD < IH) fetch(i + AHEAD);
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            Accumulator x[V];
            #pragma unroll
            for (int v = 0; v < V; ++v) x[v] = widen<Accumulator>(pack[i % (AHEAD + 1)][c][v]);
            #pragma unroll
            for (int r = 0; r < R; ++r)
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    const int s = c - t, out = i - r;
                    if (s < 0 || s >= S || out < 0 || out >= ROWS) continue;
                    #pragma unroll
                    for (int v = 0; v < V; ++v) {
                        if (r == 0 && s == 0) sum[out % R][t][v] = (Accumulator)0;
                        multiply_add(sum[out % R][t][v], x[v], weight[r][s][v]);
                    }
                }
        }
        const int out = i - (R - 1), row = row0 + out;
        if (out < 0 || (!WHOLE && row >= out_h)) continue;  // no branch where all rows are there: loads pass each other
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
            if (!EXACT && column0 + t >= out_w) continue;
            #pragma unroll
            for (int v = 0; v < V; v += WIDTH) {
                const int at[4] = {n, channel + v, row * DILATION_H + down.own, (column0 + t) * DILATION_W + across.own};
                Accumulator acc[WIDTH];
                #pragma unroll
                for (int e = 0; e < WIDTH; ++e) acc[e] = sum[out % R][t][v + e];
                epilogue(p, at, kept[v / WIDTH], acc);
            }
        }
    }
}
