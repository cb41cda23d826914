// Depthwise convolution with unit stride, channels last, fprop and dgrad: short blocks without shared memory.
//
// A thread (depthwise_thread.cuh) has ROWS rows. All rows that it reads are written out in the text, so that the compiler has
// loads of later rows under way while it adds those of earlier ones. Blocks follow each other in memory, few rows apart,
// and leave soon.

constexpr int IH = ROWS + R - 1;

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

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) depthwise_rows(const __grid_constant__ Params p) {
    pdl_trigger();
    const Place place(p, ROWS);
    if (!place.is_there(p)) return;

    // 32-bit places where the image allows them: a thread holds half as many registers of them.
    Offset line = place.n * (Offset)p.gathered_n +
        (place.first_row * DILATION_H + place.down.met) * (Offset)p.gathered_h +
        (place.first_column * DILATION_W + place.across.met) * (Offset)PITCH + place.channel;
    // From column to column is a number of the text: columns of a row then share one address, and loads say how much further.
    const Offset next_row = (Offset)p.gathered_h * DILATION_H;
    constexpr Offset next_column = (Offset)PITCH * DILATION_W;
    // Of the rows and columns, those that every tile has are not asked for.
    const unsigned int inside = place.inside();

    if (ASKS && blockIdx.x < (unsigned int)p.first_blocks)
        ask_for_row(p, line - place.channel, place.first_row, place.first_column);
    pdl_wait();
    // Never true. Loads of the read-only path, which the compiler takes to be of constants, would pass the wait; none passes
    // a place where threads may end.
    if (p.nothing != 0) return;

    Gathered pack[AHEAD + 1][IW][V];  // rows under way
    auto fetch = [&](int i) {
        const bool is_row =
            (SAFE_ROW_FROM <= i && i < SAFE_ROW_TO) || (unsigned int)(place.first_row + i) < (unsigned int)place.in_h;
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            const bool is_column = (SAFE_FROM <= c && c < SAFE_TO) || (inside >> c & 1u) != 0;
            load_if<V>(is_row && is_column, p.gathered + (line + c * next_column), pack[i % (AHEAD + 1)][c]);
        }
        line += next_row;
    };
    #pragma unroll
    for (int i = 0; i < AHEAD && i < IH; ++i) fetch(i);

    Accum weight[R][S][V];
    load_filters(p, place.channel, weight);
    ColumnOperands kept[V / WIDTH];
    keep_all(p, place, kept);

    Accum sum[R][TW][V];
    #pragma unroll
    for (int i = 0; i < IH; ++i) {
        if (i + AHEAD < IH) fetch(i + AHEAD);
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            Accum x[V];
            #pragma unroll
            for (int v = 0; v < V; ++v) x[v] = widen<Accum>(pack[i % (AHEAD + 1)][c][v]);
            #pragma unroll
            for (int r = 0; r < R; ++r)
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    const int s = c - t, out = i - r;
                    if (s < 0 || s >= S || out < 0 || out >= ROWS) continue;
                    #pragma unroll
                    for (int v = 0; v < V; ++v) {
                        if (r == 0 && s == 0) sum[out % R][t][v] = (Accum)0;
                        multiply_add(sum[out % R][t][v], x[v], weight[r][s][v]);
                    }
                }
        }
        const int out = i - (R - 1), row = place.row0 + out;
        if (out < 0 || (!WHOLE && row >= place.out_h)) continue;  // no branch where all rows are there: loads pass each other
        leave(p, place, kept, row, sum[out % R]);
    }
}
