// resample_pool_backward computes the gradient of pooling with small windows whose extents are compile-time constants. dx
// receives a fraction of dy from each average that covers it, or dy from each window whose first maximum it is.
//
// Tile:    STRIDE_W * COLS columns of dx for a thread (MIDDLE), STRIDE_H rows in each of TURNS turns, VEC_WIDTH elements of
//          each.
// Memory:  a row of x is read once (resample_span.cuh); a row of dx is written when no later window covers it.
// Threads: a thread slides down the rows of windows. BESIDE other windows reach its columns, BEFORE_OWN of them begin before
//          its own, and BACK rows of windows reach its first row. Open rows stay in registers.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W: extents and strides of windows, 1 or more; LEFT: columns of x before the tile.
//   COLS, VEC_WIDTH, TURNS: the tile; ROW, COL: positions of the two axes; ALONG: 1 if columns are contiguous.
//   X_VEC_WIDTH, DY_VEC_WIDTH, DX_VEC_WIDTH: elements of an access to x, dy and dx, 1 or more; HALO: see resample_span.cuh.
//   X_WHOLE, Y_WHOLE, CHECK_ROWS: which bounds have to be checked.
//   IS_MAXIMUM: 1 for maximum pooling; ZEROS: 1 if padding counts as zeros; BLOCKS: CTAs that must fit on an SM.

#include "pdl.cuh"
#include "fast_division.cuh"
#include "resample_span.cuh"
#include "resample_first.cuh"

constexpr int WINDOWS = COLS + BESIDE;
constexpr int OVERLAP_ROWS = WINDOW_H > STRIDE_H ? WINDOW_H - STRIDE_H : 0;  // rows of x that adjacent windows share
constexpr int REACH = WINDOW_H > STRIDE_H ? WINDOW_H : STRIDE_H;
constexpr bool CLAMPS_TO_EDGE = IS_MAXIMUM && !ZEROS;  // elements outside x repeat its edge
constexpr int ROTATION = BACK + 1;  // period after which registers hold the same rows again

// A row of x: its elements, the largest element of each window in the row, and the gradient that windows send to it. Indices
// are not stored, because the first of equal values receives the gradient.
struct Line {
    Compute element[SPAN][VEC_WIDTH], largest[WINDOWS][VEC_WIDTH], sent[WINDOWS][VEC_WIDTH];
};

// Widths that this variant does not use; branches that are never taken name them.
template <int V> __device__ void gradient(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void gradient_beside(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void epilogue(const Params&, const int (&)[RANK], const Compute (&)[V]) {}

__device__ __forceinline__ void reduce_line(const Params& p, const Span& span, int h, Line& line) {
    const bool counts = !CHECK_ROWS || !ZEROS || inside(h, p.image[0]);
    #pragma unroll
    for (int j = 0; j < SPAN; ++j)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) line.element[j][e] = canonical(span[j][e]);
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            Compute columns[WINDOW_W];
            #pragma unroll
            for (int s = 0; s < WINDOW_W; ++s) columns[s] = line.element[q * STRIDE_W + s][e];
            const Compute value = maximum(columns);
            line.largest[q][e] = counts ? value : (Compute)0;
        }
    }
}

__device__ __forceinline__ void read_line(const Params& p, const int (&at)[RANK], int h, int w, Line& line) {
    Span span;
    read_span(p, Ends(), at, h, w, span);
    reduce_line(p, span, h, line);
}

// The gradients of the windows of row o of dy.
__device__ __forceinline__ void read_gradients(
    const Params& p, const int (&at)[RANK], int o, int column, Compute (&value)[WINDOWS][VEC_WIDTH]) {
    const int width = (int)p.outputs[1];
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[ROW] = clamped(o, (int)p.outputs[0] - 1);
    if constexpr (ALONG) {
        #pragma unroll
        for (int q = 0; q < COLS; q += DY_VEC_WIDTH) {
            Compute some[DY_VEC_WIDTH];
            from[COL] = Y_WHOLE ? column + q : clamped(column + q, width - DY_VEC_WIDTH);
            gradient(p, from, some);
            #pragma unroll
            for (int e = 0; e < DY_VEC_WIDTH; ++e) value[BEFORE_OWN + q + e][0] = some[e];
        }
        #pragma unroll
        for (int i = 0; i < BESIDE; ++i) {
            const int q = i < BEFORE_OWN ? i : i + COLS;
            Compute one[1];
            from[COL] = clamped(column - BEFORE_OWN + q, width - 1);
            if constexpr (DY_VEC_WIDTH == 1) gradient(p, from, one);
            else gradient_beside(p, from, one);
            value[q][0] = one[0];
        }
    } else {
        #pragma unroll
        for (int q = 0; q < WINDOWS; ++q) {
            from[COL] = clamped(column - BEFORE_OWN + q, width - 1);
            gradient(p, from, value[q]);
        }
    }
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        const bool counts = is_within<COLS>(column, q - BEFORE_OWN, width, Y_WHOLE);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) value[q][e] = counts ? value[q][e] : (Compute)0;
    }
}

// Data of the next row of windows that is not available yet. Its loads overlap the computation of the current row.
struct Next {
    Span rows[STRIDE_H];
    Compute gradients[WINDOWS][VEC_WIDTH];
};

// Loads the data of row o of windows, whose first row of x is h.
__device__ __forceinline__ void load_next_row(
    const Params& p, const int (&at)[RANK], int o, int column, int h, int w, Next& next) {
    read_gradients(p, at, o, column, next.gradients);
    #pragma unroll
    for (int r = OVERLAP_ROWS; IS_MAXIMUM && r < WINDOW_H; ++r) read_span(p, Ends(), at, h + r, w, next.rows[r - OVERLAP_ROWS]);
}

// Windows whose first row of x is h send their gradients to rows. The last STRIDE_H rows have received nothing before.
__device__ __forceinline__ void distribute_to_rows(
    const Params& p, int h, int w, const Compute (&gradients)[WINDOWS][VEC_WIDTH], Line (&lines)[REACH]) {
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        const Compute count = elements(p, h, w - LEFT + q * STRIDE_W), reciprocal = inverse(count);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            const Compute value = IS_MAXIMUM ? gradients[q][e] : divided(gradients[q][e], count, reciprocal);
            Compute rows[WINDOW_H];
            #pragma unroll
            for (int r = 0; r < WINDOW_H; ++r) rows[r] = lines[r].largest[q][e];
            const FirstMaximum<WINDOW_H> gets = first_maximum(rows, maximum(rows));
            #pragma unroll
            for (int r = 0; r < WINDOW_H; ++r) {
                Compute& sum = lines[r].sent[q][e];
                if (r >= OVERLAP_ROWS) sum = gets.is[r] ? value : (Compute)0;
                else if (gets.is[r]) sum = wrapping_sum(sum, value);
            }
        }
    }
}

// Rows before x repeat its first row, so their gradients move to it.
__device__ __forceinline__ void move_padding_gradients(int h, Line (&lines)[REACH]) {
    #pragma unroll
    for (int r = 0; r < WINDOW_H - 1; ++r) {
        const bool moves = h + r < 0;
        #pragma unroll
        for (int q = 0; q < WINDOWS; ++q) {
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                Compute& sum = lines[r].sent[q][e];
                lines[r + 1].sent[q][e] = wrapping_sum(lines[r + 1].sent[q][e], moves ? sum : (Compute)0);
                sum = moves ? (Compute)0 : sum;
            }
        }
    }
}

// Distributes the gradients of a row to its columns from w on.
__device__ __forceinline__ void distribute_to_columns(const Line& line, int w, Compute (&sums)[MIDDLE][VEC_WIDTH]) {
    Compute before[VEC_WIDTH];  // gradients of columns before x, which repeat the first column
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        before[e] = (Compute)0;
        #pragma unroll
        for (int j = 0; j < MIDDLE; ++j) sums[j][e] = (Compute)0;
    }
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            Compute columns[WINDOW_W];
            #pragma unroll
            for (int s = 0; s < WINDOW_W; ++s) columns[s] = line.element[q * STRIDE_W + s][e];
            const FirstMaximum<WINDOW_W> gets = first_maximum(columns, line.largest[q][e]);
            #pragma unroll
            for (int s = 0; s < WINDOW_W; ++s) {
                const int j = q * STRIDE_W + s - LEFT;
                const bool is_before = CLAMPS_TO_EDGE && j < 0 && q >= BEFORE_OWN;
                Compute& sum = is_before ? before[e] : sums[j < 0 ? 0 : j < MIDDLE ? j : 0][e];
                if ((is_before || (j >= 0 && j < MIDDLE)) && gets.is[s]) sum = wrapping_sum(sum, line.sent[q][e]);
            }
        }
    }
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e)
        if (CLAMPS_TO_EDGE && LEFT > BEFORE_OWN * STRIDE_W)
            sums[0][e] = wrapping_sum(sums[0][e], w == 0 ? before[e] : (Compute)0);
}

__device__ __forceinline__ void write_row(
    const Params& p, int (&at)[RANK], int h, int w, const Compute (&sums)[MIDDLE][VEC_WIDTH]) {
    const int width = (int)p.image[1];
    at[ROW] = h;
    if constexpr (ALONG) {
        #pragma unroll
        for (int j = 0; j < MIDDLE; j += DX_VEC_WIDTH) {
            Compute some[DX_VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < DX_VEC_WIDTH; ++e) some[e] = sums[j + e][0];
            at[COL] = w + j;
            if (X_WHOLE || w + j < width) epilogue(p, at, some);
        }
    } else {
        #pragma unroll
        for (int j = 0; j < MIDDLE; ++j) {
            at[COL] = w + j;
            if (X_WHOLE || w + j < width) epilogue(p, at, sums[j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) resample_pool_backward(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) return;
    int at[RANK];  // in multiples of a thread's elements
    Count left = i;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count outer = quotient(left, p.steps[j], p.magic[j]);
        at[j] = (int)(left - outer * (Count)p.steps[j]);
        left = outer;
    }
    at[0] = (int)left;
    if constexpr (!ALONG) at[RANK - 1] *= VEC_WIDTH;
    const int first = at[ROW] * TURNS, column = at[COL] * COLS, w = column * STRIDE_W;
    int h = (first - BACK) * STRIDE_H - (int)p.top;
    at[COL] = w;
    Line lines[REACH];
    #pragma unroll
    for (int r = 0; r < OVERLAP_ROWS; ++r)
        #pragma unroll
        for (int q = 0; q < WINDOWS; ++q)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) lines[r].sent[q][e] = (Compute)0;
    if constexpr (IS_MAXIMUM) {
        #pragma unroll
        for (int r = 0; r < OVERLAP_ROWS; ++r) read_line(p, at, h + r, w, lines[r]);
    }
    Next next;
    load_next_row(p, at, first - BACK, column, h, w, next);
    #pragma unroll ROTATION
    for (int turn = -BACK; turn < TURNS; ++turn, h += STRIDE_H) {
        const Next now = next;
        load_next_row(p, at, first + turn + 1, column, h + STRIDE_H, w, next);
        if constexpr (IS_MAXIMUM) {
            #pragma unroll
            for (int r = OVERLAP_ROWS; r < WINDOW_H; ++r) {
                reduce_line(p, now.rows[r - OVERLAP_ROWS], h + r, lines[r]);
            }
        }
        #pragma unroll
        for (int r = OVERLAP_ROWS; r < REACH; ++r)
            #pragma unroll
            for (int q = 0; q < WINDOWS; ++q)
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) lines[r].sent[q][e] = (Compute)0;
        if (inside(first + turn, p.outputs[0])) {
            distribute_to_rows(p, h, w, now.gradients, lines);
            if (CLAMPS_TO_EDGE && h < 0) move_padding_gradients(h, lines);
        }
        #pragma unroll
        for (int r = 0; r < STRIDE_H; ++r) {
            const bool is_own = turn >= 0 && (!CHECK_ROWS || inside(h + r, p.image[0]));
            if (is_own) {
                int to[RANK];
                #pragma unroll
                for (int j = 0; j < RANK; ++j) to[j] = at[j];
                Compute sums[MIDDLE][VEC_WIDTH];
                distribute_to_columns(lines[r], w, sums);
                write_row(p, to, h + r, w, sums);
            }
        }
        #pragma unroll
        for (int r = 0; r < REACH; ++r) {
            if (r < OVERLAP_ROWS) lines[r] = lines[r + STRIDE_H];
        }
    }
}
