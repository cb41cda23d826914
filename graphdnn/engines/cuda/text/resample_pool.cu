// Pooling with a window known to the compiler. A thread goes down the rows of x and computes COLS neighbouring outputs of
// ROWS rows a turn; a row of x is read and widened once, what it gives to the outputs stays in registers.
//
//     x     [ LEFT | MIDDLE = COLS * STRIDE_W elements | rest ]     SPAN elements, each a pack of PACK
//     y            [ COLS outputs ]
//
// "Rows" and "columns" are the two axes that windows move along, wherever they lie in memory. The last axis is vectorised:
// where it is another one, each column is an access of its own (PACK > 1); where it is the columns' (ALONG), the
// middle is read in accesses of X_PACK and what is beside it in accesses of HALO. Nothing branches between loads, so
// many are under way: addresses outside x move to its edge, and what they read is replaced where padding is zeros.

constexpr int SPAN = (COLS - 1) * STRIDE_W + WINDOW_W, MIDDLE = COLS * STRIDE_W;
constexpr int RIGHT = SPAN > LEFT + MIDDLE ? SPAN - LEFT - MIDDLE : 0;
constexpr int BEFORE = (LEFT + HALO - 1) / HALO * HALO, AFTER = (RIGHT + HALO - 1) / HALO * HALO;
constexpr int X_ROWS = (ROWS - 1) * STRIDE_H + WINDOW_H, KEPT = WINDOW_H > STRIDE_H ? WINDOW_H - STRIDE_H : 0;
constexpr int LINE = ROWS_FIRST ? COLS : SPAN;

typedef Compute Span[SPAN][PACK];
typedef Compute Columns[COLS][PACK];
typedef int Places[COLS][PACK];

// What a row of x gives: its part of each output, or where columns are summed first its elements.
struct Line {
    Compute value[LINE][PACK];
    int place[LINE][PACK];
};

// Widths that this variant does not use: branches that are never taken name them.
template <int V> __device__ void prologue(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void prologue_halo(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V>
__device__ void epilogue(const Params&, const int (&)[RANK], const Compute (&)[V], const int (&)[V]) {}

__device__ __forceinline__ bool inside(int i, long long size) { return (unsigned int)i < (unsigned int)size; }

__device__ __forceinline__ int clamped(int i, int last) { return i < 0 ? 0 : i > last ? last : i; }

// Element j of a span may be outside x.
__device__ constexpr bool may_be_outside(int j) { return j < LEFT || j >= CHECKED_FROM; }

// V elements from j on of a row that is read along itself; ``held`` begins at -BEFORE.
template <int V> __device__ __forceinline__ void read_piece(const Params& p, int (&from)[RANK], int w, int j, Compute (&held)[BEFORE + MIDDLE + AFTER]) {
    const int width = (int)p.image[1];
    Compute some[V];
    from[COL] = clamped(w + j, width - V);
    if constexpr (V == X_PACK) prologue(p, from, some);
    else prologue_halo(p, from, some);
    const bool counts = !may_be_outside(j + LEFT) || inside(w + j, width);
    #pragma unroll
    for (int e = 0; e < V; ++e) held[BEFORE + j + e] = ZEROS && !counts ? (Compute)0 : some[e];
}

__device__ __forceinline__ void read_along(const Params& p, int (&from)[RANK], int w, Span& span) {
    Compute held[BEFORE + MIDDLE + AFTER];
    #pragma unroll
    for (int j = -BEFORE; j < 0; j += HALO) read_piece<HALO>(p, from, w, j, held);
    #pragma unroll
    for (int j = 0; j < MIDDLE; j += X_PACK) read_piece<X_PACK>(p, from, w, j, held);
    #pragma unroll
    for (int j = MIDDLE; j < MIDDLE + AFTER; j += HALO) read_piece<HALO>(p, from, w, j, held);
    if constexpr (!ZEROS) {  // the edge's element is in another place of its access
        #pragma unroll
        for (int j = -1; j >= -BEFORE; --j)
            if (w + j < 0) held[BEFORE + j] = held[BEFORE + j + 1];
        #pragma unroll
        for (int j = 1 - BEFORE; j < MIDDLE + AFTER; ++j)
            if (may_be_outside(j + LEFT) && w + j >= (int)p.image[1]) held[BEFORE + j] = held[BEFORE + j - 1];
    }
    #pragma unroll
    for (int j = 0; j < SPAN; ++j) span[j][0] = held[BEFORE - LEFT + j];
}

__device__ __forceinline__ void read_span(const Params& p, const int (&at)[RANK], int h, int w, Span& span) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[ROW] = clamped(h, (int)p.image[0] - 1);
    if constexpr (ALONG) {
        read_along(p, from, w, span);
    } else {
        #pragma unroll
        for (int j = 0; j < SPAN; ++j) {
            const int column = w - LEFT + j;
            from[COL] = may_be_outside(j) ? clamped(column, (int)p.image[1] - 1) : column;
            prologue(p, from, span[j]);
            if (ZEROS && may_be_outside(j) && !inside(column, p.image[1])) {
                #pragma unroll
                for (int e = 0; e < PACK; ++e) span[j][e] = (Compute)0;
            }
        }
    }
}

// Windows across a row: N is SPAN and M is COLS where this is executed.
template <int N, int M> __device__ __forceinline__ void across(
    const Compute (&span)[N][PACK], int w, Compute (&result)[M][PACK], int (&place)[M][PACK]) {
    #pragma unroll
    for (int q = 0; q < COLS; ++q) {
        #pragma unroll
        for (int e = 0; e < PACK; ++e) {
            Compute value = span[q * STRIDE_W][e];
            int found = 0;
            #pragma unroll
            for (int s = 1; s < WINDOW_W; ++s) {
                const Compute next = span[q * STRIDE_W + s][e];
                if constexpr (INDEX) found = beats(next, value) ? s : found;
                value = IS_MAXIMUM ? larger(value, next) : value + next;
            }
            result[q][e] = value;
            // Elements outside repeat the edge: the first that counts is the edge itself.
            const int first = LEFT - w - q * STRIDE_W;
            if constexpr (INDEX) place[q][e] = ABSENT && found < first ? first : found;
        }
    }
}

__device__ __forceinline__ void read_line(const Params& p, const int (&at)[RANK], int h, int w, Line& line) {
    const bool counts = !ZERO_ROWS || inside(h, p.image[0]);
    Span span;
    read_span(p, at, h, w, span);
    if constexpr (ROWS_FIRST) {
        across(span, w, line.value, line.place);
    } else {
        #pragma unroll
        for (int j = 0; j < SPAN; ++j)
            #pragma unroll
            for (int e = 0; e < PACK; ++e) line.value[j][e] = span[j][e];
    }
    #pragma unroll
    for (int j = 0; j < LINE; ++j) {
        #pragma unroll
        for (int e = 0; e < PACK; ++e) {
            line.value[j][e] = counts ? line.value[j][e] : (Compute)0;
            if constexpr (INDEX) line.place[j][e] = counts ? line.place[j][e] : 0;
        }
    }
}

// The quotient as a division rounds it (P. Markstein) where that decides about an integer; infinities leave no rest.
__device__ __forceinline__ float divided(float sum, float count, float reciprocal) {
    const float near = sum * reciprocal;
    if constexpr (!EXACT) return near;
    const float rest = fmaf(-near, count, sum);
    return rest == rest ? fmaf(rest, reciprocal, near) : near;
}
template <class T> __device__ __forceinline__ T divided(T sum, T count, T) { return sum / count; }

__device__ __forceinline__ Compute elements(const Params& p, int h, int w) {
    if constexpr (!EXCLUDING) return (Compute)(WINDOW_H * WINDOW_W);
    const int height = (int)p.image[0], width = (int)p.image[1];
    const int rows = (h + WINDOW_H < height ? h + WINDOW_H : height) - (h > 0 ? h : 0);
    const int columns = (w + WINDOW_W < width ? w + WINDOW_W : width) - (w > 0 ? w : 0);
    return (Compute)(rows > 0 && columns > 0 ? rows * columns : 1);
}

// The windows of one row of outputs, from the lines they cover.
__device__ __forceinline__ void down(const Params& p, const Line* lines, int h, int w, Columns& result, Places& place) {
    Line total = lines[0];
    #pragma unroll
    for (int r = 0; r < WINDOW_H; ++r) {
        const int row = ABSENT && r < -h ? -h : r;
        #pragma unroll
        for (int j = 0; j < LINE; ++j) {
            #pragma unroll
            for (int e = 0; e < PACK; ++e) {
                const Compute next = lines[r].value[j][e];
                if constexpr (INDEX) {
                    const bool better = r == 0 || beats(next, total.value[j][e]);
                    total.place[j][e] = better ? row * WINDOW_W + lines[r].place[j][e] : total.place[j][e];
                }
                if (r > 0) total.value[j][e] = IS_MAXIMUM ? larger(total.value[j][e], next) : total.value[j][e] + next;
            }
        }
    }
    if constexpr (ROWS_FIRST) {
        #pragma unroll
        for (int q = 0; q < COLS; ++q)
            #pragma unroll
            for (int e = 0; e < PACK; ++e) result[q][e] = total.value[q][e], place[q][e] = INDEX ? total.place[q][e] : 0;
    } else {
        across(total.value, w, result, place);
    }
    if constexpr (!IS_MAXIMUM) {
        #pragma unroll
        for (int q = 0; q < COLS; ++q) {
            const Compute count = elements(p, h, w - LEFT + q * STRIDE_W), reciprocal = (Compute)1 / count;
            #pragma unroll
            for (int e = 0; e < PACK; ++e) result[q][e] = divided(result[q][e], count, reciprocal);
        }
    }
}

__device__ __forceinline__ void write(const Params& p, int (&at)[RANK], int column, const Columns& result, const Places& place) {
    if constexpr (ALONG) {
        Compute values[COLS];
        int places[COLS];
        #pragma unroll
        for (int q = 0; q < COLS; ++q) values[q] = result[q][0], places[q] = place[q][0];
        epilogue(p, at, values, places);
    } else {
        #pragma unroll
        for (int q = 0; q < COLS; ++q) {
            at[COL] = column + q;
            if (WHOLE_COLS || column + q < (int)p.outputs[1]) epilogue(p, at, result[q], place[q]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) resample_pool(const __grid_constant__ Params p) {
    const Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) return;
    int at[RANK];  // in steps of what a thread computes
    Count left = i;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count outer = quotient(left, p.steps[j], p.magic[j]);
        at[j] = (int)(left - outer * (Count)p.steps[j]);
        left = outer;
    }
    at[0] = (int)left;
    if constexpr (!ALONG) at[RANK - 1] *= PACK;
    const int rows = (int)p.rows, first = at[ROW] * rows, column = at[COL] * COLS;
    const int end = first + rows < (int)p.outputs[0] ? first + rows : (int)p.outputs[0];
    const int w = column * STRIDE_W;  // LEFT elements after the first
    int h = first * STRIDE_H - (int)p.top;
    at[COL] = column;
    Line lines[X_ROWS];
    #pragma unroll
    for (int k = 0; k < KEPT; ++k) read_line(p, at, h + k, w, lines[k]);
    for (int o = first; o < end; o += ROWS, h += ROWS * STRIDE_H) {
        #pragma unroll
        for (int k = KEPT; k < X_ROWS; ++k)
            if (k % STRIDE_H < WINDOW_H) read_line(p, at, h + k, w, lines[k]);  // others are between windows
        #pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (!WHOLE_ROWS && o + row >= end) break;
            Columns result;
            Places place;
            down(p, lines + row * STRIDE_H, h + row * STRIDE_H, w, result, place);
            at[ROW] = o + row;
            write(p, at, column, result, place);
            at[COL] = column;
        }
        #pragma unroll
        for (int k = 0; k < KEPT; ++k) lines[k] = lines[k + ROWS * STRIDE_H];
    }
}
