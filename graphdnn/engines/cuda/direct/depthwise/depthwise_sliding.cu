// Depthwise convolution with unit stride, channels last, fprop and dgrad: sliding window in registers, no shared memory.
//
// Tile:       a thread (depthwise_thread.cuh) slides down a segment of rows with V channels and TW columns. It keeps R output
//             rows as accumulators, adds all products of each row, and stores an output row after its last contribution.
// Pipeline:   PREFETCH_ROWS rows are in flight to registers, and L2_PREFETCH_ROWS rows ahead are prefetched into L2. Threads
//             never synchronize.
//
// Required constants (from the generator), besides those of depthwise_thread.cuh: PREFETCH_ROWS, L2_PREFETCH_ROWS: see
// above. CTAS_PER_SM: CTAs that fit on an SM.

#include "pdl.cuh"
#include "whole_lines.cuh"
#include "predicated_load.cuh"
#include "depthwise_thread.cuh"

constexpr int WARMUP_STEPS = R - 1;  // steps before the first output row is complete

// Prefetches the line at `source` into L2.
__device__ __forceinline__ void prefetch_l2(const ImageElement* source) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" :: "l"(source));
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) depthwise_sliding(const __grid_constant__ Params p) {
    pdl_trigger();
    const ThreadTile tile(p, (int)p.segment_rows);
    if (!tile.is_valid(p)) return;

    const int last = tile.row0 + (int)p.segment_rows < tile.out_h ? tile.row0 + (int)p.segment_rows : tile.out_h;
    // Steps above the image contribute nothing, so the loop skips them. Steps below the image only store rows.
    const int steps = last - tile.row0 + WARMUP_STEPS, first = tile.first_row < 0 ? -tile.first_row : 0;
    const int start = first < WARMUP_STEPS ? first : WARMUP_STEPS;
    const int stop = tile.in_h - tile.first_row < steps ? tile.in_h - tile.first_row : steps;
    const unsigned int inside = tile.inside();
    // The column stride is a compile-time constant, so the loads of a row share one address register.
    constexpr int next_column = PITCH * DILATION_W;
    const ImageElement* const row = p.image + tile.n * p.image_n +
        ((tile.first_row + start) * DILATION_H + tile.phase_h.image_phase) * p.image_h + tile.phase_w.image_phase * (long long)PITCH;
    const ImageElement* source = row + tile.first_column * (long long)next_column + tile.channel;
    // Neighbouring threads prefetch as many bytes of the tile's own columns as they store.
    const int lane = tile.channel / V, column = tile.column0 + lane % TW;
    const ImageElement* prefetch_source = row + (column < tile.in_w ? column : tile.in_w - 1) * (long long)next_column + lane / TW * (V * TW);
    const long long next_row = p.image_h * DILATION_H;

    pdl_wait();
    // Never true. The compiler may hoist read-only loads above pdl_wait, but not above a point where threads may exit.
    if (p.zero != 0) return;

    Vec<ImageElement, V> x_rows[PREFETCH_ROWS][IW];  // rows in flight; columns outside the image stay zero
    #pragma unroll
    for (int i = 0; i < PREFETCH_ROWS; ++i)
        #pragma unroll
        for (int c = 0; c < IW; ++c)
            #pragma unroll
            for (int v = 0; v < V; ++v) x_rows[i][c].data[v] = ImageElement();
    auto load_column = [&](int buffer, int c) {
        load_over_if<V>((INTERIOR_BEGIN <= c && c < INTERIOR_END) || (inside >> c & 1u) != 0, source + c * next_column, x_rows[buffer][c]);
    };
    // After the last row, the loads repeat the last row.
    #pragma unroll
    for (int i = 0; i < PREFETCH_ROWS; ++i) {
        if (start < stop)
            #pragma unroll
            for (int c = 0; c < IW; ++c) load_column(i, c);
        if (start + i + 1 < stop && i + 1 < PREFETCH_ROWS) source += next_row;
    }
    #pragma unroll
    for (int i = 0; i < L2_PREFETCH_ROWS; ++i) {
        if (PREFETCH_ROWS <= i && start + i < stop) prefetch_l2(prefetch_source);
        prefetch_source += next_row;
    }

    Accum weight[R][S][V];
    load_filters(p, tile.channel, weight);
    ColumnOperands column_operands[V / VEC_WIDTH];
    load_operands(p, tile, column_operands);

    Accum accum[R][TW][V];
    #pragma unroll
    for (int k = 0; k < R; ++k)
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            #pragma unroll
            for (int v = 0; v < V; ++v) accum[k][t][v] = (Accum)0;

    // Adds the products of a row. Each column is reloaded from a later row as soon as it has been read.
    auto multiply_row = [&](int buffer, int step) {
        if (step + PREFETCH_ROWS < stop) source += next_row;
        if (L2_PREFETCH_ROWS > 0 && step + L2_PREFETCH_ROWS < stop) prefetch_l2(prefetch_source);
        prefetch_source += next_row;
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            Accum x[V];
            #pragma unroll
            for (int v = 0; v < V; ++v) x[v] = widen<Accum>(x_rows[buffer][c].data[v]);
            load_column(buffer, c);
            #pragma unroll
            for (int k = 0; k < R; ++k)
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    const int s = c - t;
                    if (s < 0 || s >= S) continue;
                    #pragma unroll
                    for (int v = 0; v < V; ++v) multiply_add(accum[k][t][v], x[v], weight[R - 1 - k][s][v]);
                }
        }
    };
    auto shift_window = [&]() {
        #pragma unroll
        for (int k = 0; k < R; ++k)
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int v = 0; v < V; ++v) accum[k][t][v] = k + 1 < R ? accum[k + 1 < R ? k + 1 : 0][t][v] : (Accum)0;
    };
    auto finish_row = [&](int step) { store_row(p, tile, column_operands, tile.row0 + step - WARMUP_STEPS, accum[0]); };

    #pragma unroll 1
    for (int iteration = start; iteration < stop; iteration += PREFETCH_ROWS)
        #pragma unroll
        for (int i = 0; i < PREFETCH_ROWS; ++i) {
            if (i > 0 && iteration + i >= stop) break;
            multiply_row(i, iteration + i);
            if (iteration + i >= WARMUP_STEPS) finish_row(iteration + i);
            shift_window();
        }
    #pragma unroll 1
    for (int step = start < stop ? stop : start; step < steps; ++step) {
        if (step >= WARMUP_STEPS) finish_row(step);
        shift_window();
    }
}
