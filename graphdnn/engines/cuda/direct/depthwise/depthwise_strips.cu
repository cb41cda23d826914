// Depthwise convolution with unit stride, channels last, fprop and dgrad: strips of an image, rows in registers.
//
// A thread (depthwise_thread.cuh) walks down the image and keeps a window of sums: it adds every product that a row takes part
// in, and stores a row when its last one has come. AHEAD rows are on their way into its registers while it adds one, and
// ASKED rows further its part of a row is brought into the second level of cache. There is no shared memory, and nobody
// waits for anybody.

constexpr int EXTRA = R - 1;  // steps before the first row is complete

// What `from` points to is wanted in the second level of cache.
__device__ __forceinline__ void ask_for(const Gathered* from) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" :: "l"(from));
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) depthwise_strips(const __grid_constant__ Params p) {
    pdl_trigger();
    const Place place(p, (int)p.segment_rows);
    if (!place.is_there(p)) return;

    const int last = place.row0 + (int)p.segment_rows < place.out_h ? place.row0 + (int)p.segment_rows : place.out_h;
    // Steps whose rows lie above the image add nothing to empty sums, those below it only let rows leave.
    const int steps = last - place.row0 + EXTRA, first = place.first_row < 0 ? -place.first_row : 0;
    const int start = first < EXTRA ? first : EXTRA;
    const int stop = place.in_h - place.first_row < steps ? place.in_h - place.first_row : steps;
    const unsigned int inside = place.inside();
    // From column to column is a number of the text: columns of a row share one address, and loads say how much further.
    constexpr int next_column = PITCH * DILATION_W;
    const Gathered* const row = p.gathered + place.n * p.gathered_n +
        ((place.first_row + start) * DILATION_H + place.down.met) * p.gathered_h + place.across.met * (long long)PITCH;
    const Gathered* from = row + place.first_column * (long long)next_column + place.channel;
    // Of the tile's own columns threads that are neighbours ask for as many bytes as they store.
    const int lane = place.channel / V, column = place.column0 + lane % TW;
    const Gathered* asked = row + (column < place.in_w ? column : place.in_w - 1) * (long long)next_column + lane / TW * (V * TW);
    const long long next_row = p.gathered_h * DILATION_H;

    pdl_wait();
    // Never true. Loads of the read-only path, which the compiler takes to be of constants, would pass the wait; none passes
    // a place where threads may end.
    if (p.nothing != 0) return;

    Vec<Gathered, V> coming[AHEAD][IW];  // rows under way; what lies beside the image is zero from the start
    #pragma unroll
    for (int i = 0; i < AHEAD; ++i)
        #pragma unroll
        for (int c = 0; c < IW; ++c)
            #pragma unroll
            for (int v = 0; v < V; ++v) coming[i][c].at[v] = Gathered();
    auto fetch = [&](int slot, int c) {
        load_over_if<V>((SAFE_FROM <= c && c < SAFE_TO) || (inside >> c & 1u) != 0, from + c * next_column, coming[slot][c]);
    };
    // Behind the last row that one is read again.
    #pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        if (start < stop)
            #pragma unroll
            for (int c = 0; c < IW; ++c) fetch(i, c);
        if (start + i + 1 < stop && i + 1 < AHEAD) from += next_row;
    }
    #pragma unroll
    for (int i = 0; i < ASKED; ++i) {
        if (AHEAD <= i && start + i < stop) ask_for(asked);
        asked += next_row;
    }

    Accum weight[R][S][V];
    load_filters(p, place.channel, weight);
    ColumnOperands kept[V / WIDTH];
    keep_all(p, place, kept);

    Accum sum[R][TW][V];
    #pragma unroll
    for (int k = 0; k < R; ++k)
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            #pragma unroll
            for (int v = 0; v < V; ++v) sum[k][t][v] = (Accum)0;

    // The products of a row; each of its columns makes room for that of a later row.
    auto add = [&](int slot, int step) {
        if (step + AHEAD < stop) from += next_row;
        if (ASKED > 0 && step + ASKED < stop) ask_for(asked);
        asked += next_row;
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            Accum x[V];
            #pragma unroll
            for (int v = 0; v < V; ++v) x[v] = widen<Accum>(coming[slot][c].at[v]);
            fetch(slot, c);
            #pragma unroll
            for (int k = 0; k < R; ++k)
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    const int s = c - t;
                    if (s < 0 || s >= S) continue;
                    #pragma unroll
                    for (int v = 0; v < V; ++v) multiply_add(sum[k][t][v], x[v], weight[R - 1 - k][s][v]);
                }
        }
    };
    auto move = [&]() {
        #pragma unroll
        for (int k = 0; k < R; ++k)
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int v = 0; v < V; ++v) sum[k][t][v] = k + 1 < R ? sum[k + 1 < R ? k + 1 : 0][t][v] : (Accum)0;
    };
    auto finish = [&](int step) { leave(p, place, kept, place.row0 + step - EXTRA, sum[0]); };

    #pragma unroll 1
    for (int turn = start; turn < stop; turn += AHEAD)
        #pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            if (i > 0 && turn + i >= stop) break;
            add(i, turn + i);
            if (turn + i >= EXTRA) finish(turn + i);
            move();
        }
    #pragma unroll 1
    for (int step = start < stop ? stop : start; step < steps; ++step) {
        if (step >= EXTRA) finish(step);
        move();
    }
}
