// Depthwise convolution with unit stride, channels last, fprop and dgrad: short CTAs without shared memory.
//
// Tile:       a thread (depthwise_thread.cuh) owns ROWS rows of V channels and TW columns.
// Pipeline:   the loop over rows is fully unrolled, and loads run PREFETCH_ROWS rows ahead of the arithmetic.
// Scheduling: consecutive CTAs are neighbours in memory and finish soon, which keeps their reads in the L2 cache. The first
//             CTAs prefetch into L2 while the previous launch still runs (programmatic dependent launch).
//
// Required constants (from the generator), besides those of depthwise_thread.cuh: ROWS, PREFETCH_ROWS: see above.
// INTERIOR_ROW_BEGIN, INTERIOR_ROW_END: rows inside the image in every tile. WHOLE_ROWS: tiles divide the rows. PREFETCHES_L2: the first
// CTAs prefetch. L2_PREFETCH_COLUMNS: columns that they prefetch. CTAS_PER_SM: CTAs that fit on an SM.

#include "pdl.cuh"
#include "whole_lines.cuh"
#include "predicated_load.cuh"
#include "depthwise_thread.cuh"

constexpr int IH = ROWS + R - 1;

// Prefetches the CTA's first row into L2 while the previous launch may still run. The previous launch writes through the same
// L2, so a prefetch cannot return stale data. `line` is the offset of the row at the column of the first thread. Prefetching
// more rows would take bandwidth from the previous launch.
__device__ __forceinline__ void prefetch_row(const Params& p, Offset line, int row, int first_column) {
    if (threadIdx.x != 0 || (unsigned int)row >= (unsigned int)p.in_h) return;
    const int first = first_column > 0 ? first_column : 0, left = (int)p.in_w - first, columns = left < L2_PREFETCH_COLUMNS ? left : L2_PREFETCH_COLUMNS;
    const ImageElement* const start = p.image + (line + (first - first_column) * (Offset)PITCH);
    if (columns <= 0) return;
    const int bytes = columns * PITCH * (int)sizeof(ImageElement);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(start), "r"(bytes) : "memory");
#else
    (void)start, (void)bytes;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) depthwise_rows(const __grid_constant__ Params p) {
    pdl_trigger();
    const ThreadTile tile(p, ROWS);
    if (!tile.is_valid(p)) return;

    // Offset is 32 bits wide where the image allows it, which saves registers.
    Offset line = tile.n * (Offset)p.image_n +
        (tile.first_row * DILATION_H + tile.phase_h.image_phase) * (Offset)p.image_h +
        (tile.first_column * DILATION_W + tile.phase_w.image_phase) * (Offset)PITCH + tile.channel;
    // The column stride is a compile-time constant, so the loads of a row share one address register.
    const Offset next_row = (Offset)p.image_h * DILATION_H;
    constexpr Offset next_column = (Offset)PITCH * DILATION_W;
    // Rows and columns that lie inside the image in every tile need no test.
    const unsigned int inside = tile.inside();

    if (PREFETCHES_L2 && blockIdx.x < (unsigned int)p.first_blocks)
        prefetch_row(p, line - tile.channel, tile.first_row, tile.first_column);
    pdl_wait();
    // Never true. The compiler may hoist read-only loads above pdl_wait, but not above a point where threads may exit.
    if (p.zero != 0) return;

    ImageElement x_rows[PREFETCH_ROWS + 1][IW][V];  // rows in flight
    auto load_row = [&](int i) {
        const bool is_row =
            (INTERIOR_ROW_BEGIN <= i && i < INTERIOR_ROW_END) || (unsigned int)(tile.first_row + i) < (unsigned int)tile.in_h;
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            const bool is_column = (INTERIOR_BEGIN <= c && c < INTERIOR_END) || (inside >> c & 1u) != 0;
            load_if<V>(is_row && is_column, p.image + (line + c * next_column), x_rows[i % (PREFETCH_ROWS + 1)][c]);
        }
        line += next_row;
    };
    #pragma unroll
    for (int i = 0; i < PREFETCH_ROWS && i < IH; ++i) load_row(i);

    Accum weight[R][S][V];
    load_filters(p, tile.channel, weight);
    ColumnOperands column_operands[V / VEC_WIDTH];
    load_operands(p, tile, column_operands);

    Accum accum[R][TW][V];
    #pragma unroll
    for (int i = 0; i < IH; ++i) {
        if (i + PREFETCH_ROWS < IH) load_row(i + PREFETCH_ROWS);
        #pragma unroll
        for (int c = 0; c < IW; ++c) {
            Accum x[V];
            #pragma unroll
            for (int v = 0; v < V; ++v) x[v] = widen<Accum>(x_rows[i % (PREFETCH_ROWS + 1)][c][v]);
            #pragma unroll
            for (int r = 0; r < R; ++r)
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    const int s = c - t, out = i - r;
                    if (s < 0 || s >= S || out < 0 || out >= ROWS) continue;
                    #pragma unroll
                    for (int v = 0; v < V; ++v) {
                        if (r == 0 && s == 0) accum[out % R][t][v] = (Accum)0;
                        multiply_add(accum[out % R][t][v], x[v], weight[r][s][v]);
                    }
                }
        }
        const int out = i - (R - 1), row = tile.row0 + out;
        // No branch where all rows exist, so that the compiler can reorder loads.
        if (out < 0 || (!WHOLE_ROWS && row >= tile.out_h)) continue;
        store_row(p, tile, column_operands, row, accum[out % R]);
    }
}
