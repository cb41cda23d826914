// resample_pool computes pooling with small windows whose extents are compile-time constants.
//
// Tile:    COLS adjacent outputs of a row for a thread, ROWS rows in each of TURNS turns, VEC_WIDTH elements of each output.
// Memory:  a row of x is read and widened once (resample_span.cuh). "Rows" and "columns" are the two axes that windows move
//          along, wherever these lie in memory.
// Threads: a thread slides down the rows of x. The partial results of open windows stay in registers.
// Epilogue: FAST uses approximate instructions and repeats the outputs of a turn with exact ones if an error bound fails.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W: extents and strides of windows, 1 or more; LEFT: columns of padding.
//   ROWS, COLS, VEC_WIDTH, TURNS: the tile, 1 or more each; ROW, COL: positions of the two axes; ALONG: 1 if columns are
//   contiguous. X_VEC_WIDTH, HALO, SHARE, BESIDE, CHECKED_FROM, X_WHOLE: see resample_span.cuh.
//   IS_MAXIMUM: 1 for maximum pooling; INDEX: 1 if positions of maxima are stored; ABSENT: 1 if padding is never a maximum.
//   ZEROS: 1 if padding counts as zeros; CHECK_ROWS, WHOLE_ROWS, WHOLE_COLS: which bounds have to be checked.
//   ROWS_FIRST, DIVIDES_FIRST: order of sums, and of the division; FETCHES: 1 to prefetch; BLOCKS: CTAs that must fit on an SM.

#include "pdl.cuh"
#include "fast_division.cuh"
#include "resample_order.cuh"
#include "resample_span.cuh"

constexpr int OVERLAP_ROWS = WINDOW_H > STRIDE_H ? WINDOW_H - STRIDE_H : 0;  // rows of x that adjacent windows share
constexpr int LINE = ROWS_FIRST ? COLS : SPAN;

typedef Compute Columns[COLS][VEC_WIDTH];
typedef int Places[COLS][VEC_WIDTH];

// The result of a row of x: its part of each output, or its elements if columns are summed first.
struct Line {
    Compute value[LINE][VEC_WIDTH];
    int place[LINE][VEC_WIDTH];
};

template <int V>
__device__ void epilogue(const Params&, const int (&)[RANK], const Compute (&)[V], const int (&)[V]) {}
template <int V> __device__ void fast_epilogue(
    const Params&, const int (&)[RANK], const Compute (&)[V], const int (&)[V], unsigned int&) {}

// Gradients are divided before they are added.
__device__ __forceinline__ void divide(Span& span) {
    constexpr Compute count = WINDOW_H * WINDOW_W, reciprocal = (Compute)1 / count;
    #pragma unroll
    for (int j = 0; j < SPAN; ++j)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) span[j][e] = divided(span[j][e], count, reciprocal);
}

// Reduces the windows across a row. In the executed variant N is SPAN and M is COLS.
template <int N, int M> __device__ __forceinline__ void across(
    const Compute (&span)[N][VEC_WIDTH], int w, Compute (&result)[M][VEC_WIDTH], int (&place)[M][VEC_WIDTH]) {
    #pragma unroll
    for (int q = 0; q < COLS; ++q) {
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            Compute value = span[q * STRIDE_W][e];
            int found = 0;
            #pragma unroll
            for (int s = 1; s < WINDOW_W; ++s) {
                const Compute next = span[q * STRIDE_W + s][e];
                if constexpr (INDEX) found = is_greater(next, value) ? s : found;
                value = IS_MAXIMUM ? maximum_of(value, next) : value + next;
            }
            result[q][e] = value;
            // Elements outside x repeat the edge, so the first element that counts is the edge itself.
            const int first = LEFT - w - q * STRIDE_W;
            if constexpr (INDEX) place[q][e] = ABSENT && found < first ? first : found;
        }
    }
}

__device__ __forceinline__ void read_line(
    const Params& p, const Ends& ends, const int (&at)[RANK], int h, int w, Line& line) {
    const bool counts = !CHECK_ROWS || !ZEROS || inside(h, p.image[0]);
    Span span;
    read_span(p, ends, at, h, w, span);
    if constexpr (DIVIDES_FIRST) divide(span);
    if constexpr (ROWS_FIRST) {
        across(span, w, line.value, line.place);
    } else {
        #pragma unroll
        for (int j = 0; j < SPAN; ++j)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) line.value[j][e] = span[j][e];
    }
    #pragma unroll
    for (int j = 0; j < LINE; ++j) {
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            line.value[j][e] = counts ? line.value[j][e] : (Compute)0;
            if constexpr (INDEX) line.place[j][e] = counts ? line.place[j][e] : 0;
        }
    }
}

// Reduces the windows of one row of outputs, from the rows of x that they cover.
__device__ __forceinline__ void down(const Params& p, const Line* lines, int h, int w, Columns& result, Places& place) {
    Line total = lines[0];
    #pragma unroll
    for (int r = 0; r < WINDOW_H; ++r) {
        const int row = ABSENT && r < -h ? -h : r;
        #pragma unroll
        for (int j = 0; j < LINE; ++j) {
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                const Compute next = lines[r].value[j][e];
                if constexpr (INDEX) {
                    const bool better = r == 0 || is_greater(next, total.value[j][e]);
                    total.place[j][e] = better ? row * WINDOW_W + lines[r].place[j][e] : total.place[j][e];
                }
                Compute& sum = total.value[j][e];
                if (r > 0) sum = IS_MAXIMUM ? maximum_of(sum, next) : sum + next;
            }
        }
    }
    if constexpr (ROWS_FIRST) {
        #pragma unroll
        for (int q = 0; q < COLS; ++q)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e)
                result[q][e] = total.value[q][e], place[q][e] = INDEX ? total.place[q][e] : 0;
    } else {
        across(total.value, w, result, place);
    }
    if constexpr (!IS_MAXIMUM && !DIVIDES_FIRST) {
        #pragma unroll
        for (int q = 0; q < COLS; ++q) {
            const Compute count = elements(p, h, w - LEFT + q * STRIDE_W), reciprocal = inverse(count);
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) result[q][e] = divided(result[q][e], count, reciprocal);
        }
    }
}

template <bool IS_FAST, int V> __device__ __forceinline__ void finish(
    const Params& p, const int (&at)[RANK], const Compute (&result)[V], const int (&place)[V], unsigned int& fallback_flags) {
    if constexpr (IS_FAST) fast_epilogue(p, at, result, place, fallback_flags);
    else epilogue(p, at, result, place);
}

template <bool IS_FAST> __device__ __forceinline__ void write(
    const Params& p, int (&at)[RANK], int column, const Columns& result, const Places& place, unsigned int& fallback_flags) {
    if constexpr (ALONG) {
        Compute values[COLS];
        int places[COLS];
        #pragma unroll
        for (int q = 0; q < COLS; ++q) values[q] = result[q][0], places[q] = place[q][0];
        finish<IS_FAST>(p, at, values, places, fallback_flags);
    } else {
        #pragma unroll
        for (int q = 0; q < COLS; ++q) {
            at[COL] = column + q;
            if (WHOLE_COLS || column + q < (int)p.outputs[1]) finish<IS_FAST>(p, at, result[q], place[q], fallback_flags);
        }
    }
}

// Prefetches the elements that read_span reads later, if each column is an access of its own.
__device__ __forceinline__ void fetch_row(const Params& p, const int (&at)[RANK], int h, int w) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[ROW] = clamped(h, (int)p.image[0] - 1);
    from[COL] = w;
    fetch_prologue(p, from);
}

// All outputs of a thread, N rows in each turn. ``fallback_flags`` receives a bit for each fast operation whose
// result is invalid.
template <bool IS_FAST, int N> __device__ __forceinline__ void compute_outputs(
    const Params& p, const Ends& ends, const int (&start)[RANK], int first, int column, unsigned int& fallback_flags) {
    constexpr int X_ROWS = (N - 1) * STRIDE_H + WINDOW_H;  // rows of x that a turn reads
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = start[j];
    const int w = column * STRIDE_W, end = (int)p.outputs[0];
    int h = first * STRIDE_H - (int)p.top;
    Line lines[X_ROWS];
    #pragma unroll
    for (int k = 0; k < OVERLAP_ROWS; ++k) read_line(p, ends, at, h + k, w, lines[k]);
    #pragma unroll 1
    for (int o = first; o < first + ROWS * TURNS; o += N, h += N * STRIDE_H) {
        if (!SHARE && !WHOLE_ROWS && o >= end) break;
        if (FETCHES && o + N < first + ROWS * TURNS) {
            #pragma unroll
            for (int k = OVERLAP_ROWS; k < X_ROWS; ++k) fetch_row(p, at, h + k + N * STRIDE_H, w);
        }
        #pragma unroll
        for (int k = OVERLAP_ROWS; k < X_ROWS; ++k) {
            if (k % STRIDE_H < WINDOW_H) read_line(p, ends, at, h + k, w, lines[k]);  // other rows lie between windows
            const int row = (k + 1 - WINDOW_H) / STRIDE_H;
            if (k + 1 < WINDOW_H || (k + 1 - WINDOW_H) % STRIDE_H) continue;
            at[ROW] = o + row;
            if (!WHOLE_ROWS && o + row >= end) continue;
            Columns result;
            Places place;
            down(p, lines + row * STRIDE_H, h + row * STRIDE_H, w, result, place);
            write<IS_FAST>(p, at, column, result, place, fallback_flags);
        }
        #pragma unroll
        for (int k = 0; k < OVERLAP_ROWS; ++k) lines[k] = lines[k + N * STRIDE_H];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) resample_pool(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) {
        if (!SHARE) return;
        i %= (Count)p.count;  // surplus threads of a warp repeat the first threads
    }
    int at[RANK];  // in multiples of a thread's outputs
    Count left = i;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count outer = quotient(left, p.steps[j], p.magic[j]);
        at[j] = (int)(left - outer * (Count)p.steps[j]);
        left = outer;
    }
    at[0] = (int)left;
    if constexpr (!ALONG) at[RANK - 1] *= VEC_WIDTH;
    const int first = at[ROW] * (ROWS * TURNS), column = at[COL] * COLS;
    at[COL] = column;
    Ends ends;
    if constexpr (SHARE) ends = ends_of_warp(p, at, first * STRIDE_H, column * STRIDE_W);
    unsigned int fallback_flags = 0;
    compute_outputs<FAST, ROWS>(p, ends, at, first, column, fallback_flags);
    if constexpr (FAST) {  // rare: repeats the outputs in the exact form
        const bool again = fallback_flags & NEEDS_POWF;
        if (SHARE ? __any_sync(~0u, again) : again) compute_outputs<false, 1>(p, ends, at, first, column, fallback_flags);
    }
}
