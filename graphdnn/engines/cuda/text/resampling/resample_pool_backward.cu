// The gradient of pooling with a window known to the compiler. A thread goes down the rows of windows: it sends each one's
// gradient to its elements, or to that of its maximum, which it finds again. Rows of dx that no later window reaches are
// written, the others stay in registers. A thread has the STRIDE_W * COLS columns of COLS windows (MIDDLE); BESIDE
// windows more, BEFORE_OWN of them before its own, reach these columns, and BACK rows of windows reach its first row.

constexpr int WINDOWS = COLS + BESIDE;
constexpr int KEPT = WINDOW_H > STRIDE_H ? WINDOW_H - STRIDE_H : 0;
constexpr int REACH = WINDOW_H > STRIDE_H ? WINDOW_H : STRIDE_H;

// The largest elements of a row that windows have, and their places in that row of the window.
struct Line {
    Compute value[WINDOWS][PACK];
    int place[WINDOWS][PACK];
};

// Of elements of dx: not all of them are known yet.
typedef Compute Sums[MIDDLE][PACK];

// Widths that this variant does not use: branches that are never taken name them.
template <int V> __device__ void gradient(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void gradient_beside(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void epilogue(const Params&, const int (&)[RANK], const Compute (&)[V]) {}

__device__ __forceinline__ void read_line(const Params& p, const int (&at)[RANK], int h, int w, Line& line) {
    const bool counts = !CHECK_ROWS || !ZEROS || inside(h, p.image[0]);
    Span span;
    read_span(p, Ends(), at, h, w, span);
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        #pragma unroll
        for (int e = 0; e < PACK; ++e) {
            Compute value = span[q * STRIDE_W][e];
            int place = 0;
            #pragma unroll
            for (int s = 1; s < WINDOW_W; ++s) {
                const Compute next = span[q * STRIDE_W + s][e];
                place = beats(next, value) ? s : place;
                value = larger(value, next);
            }
            // Elements outside repeat the edge: the first that counts is the edge itself.
            const int first = LEFT - w - q * STRIDE_W;
            if (!ZEROS && LEFT > q * STRIDE_W) place = place < first ? first : place;
            line.value[q][e] = counts ? value : (Compute)0;
            line.place[q][e] = counts ? place : 0;
        }
    }
}

// What the windows of row o send back.
__device__ __forceinline__ void read_gradients(
    const Params& p, const int (&at)[RANK], int o, int column, Compute (&value)[WINDOWS][PACK]) {
    const int height = (int)p.outputs[0], width = (int)p.outputs[1];
    const bool is_row = inside(o, height);
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[ROW] = clamped(o, height - 1);
    if constexpr (ALONG) {
        #pragma unroll
        for (int q = 0; q < COLS; q += Y_PACK) {
            Compute some[Y_PACK];
            from[COL] = clamped(column + q, width - Y_PACK);
            gradient(p, from, some);
            #pragma unroll
            for (int e = 0; e < Y_PACK; ++e)
                value[BEFORE_OWN + q + e][0] = is_row && inside(column + q, width) ? some[e] : (Compute)0;
        }
        #pragma unroll
        for (int i = 0; i < BESIDE; ++i) {
            const int q = i < BEFORE_OWN ? i : i + COLS, beside = column - BEFORE_OWN + q;
            Compute one[1];
            from[COL] = clamped(beside, width - 1);
            if constexpr (Y_PACK == 1) gradient(p, from, one);
            else gradient_beside(p, from, one);
            value[q][0] = is_row && inside(beside, width) ? one[0] : (Compute)0;
        }
    } else {
        #pragma unroll
        for (int q = 0; q < WINDOWS; ++q) {
            const int here = column - BEFORE_OWN + q;
            from[COL] = clamped(here, width - 1);
            gradient(p, from, value[q]);
            #pragma unroll
            for (int e = 0; e < PACK; ++e) value[q][e] = is_row && inside(here, width) ? value[q][e] : (Compute)0;
        }
    }
}

// The windows whose rows are `lines`, the first of which is row h of x.
__device__ __forceinline__ void send_back(
    const Line (&lines)[REACH], int h, const Compute (&gradients)[WINDOWS][PACK], Sums (&sums)[REACH]) {
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        #pragma unroll
        for (int e = 0; e < PACK; ++e) {
            Compute value = lines[0].value[q][e];
            int place = lines[0].place[q][e];
            #pragma unroll
            for (int r = 1; r < WINDOW_H; ++r) {
                const Compute next = lines[r].value[q][e];
                place = beats(next, value) ? r * WINDOW_W + lines[r].place[q][e] : place;
                value = larger(value, next);
            }
            // Rows outside repeat the edge as columns do.
            if (!ZEROS && CHECK_ROWS && h < 0 && place < -h * WINDOW_W) place = place % WINDOW_W - h * WINDOW_W;
            #pragma unroll
            for (int r = 0; r < WINDOW_H; ++r) {
                #pragma unroll
                for (int s = 0; s < WINDOW_W; ++s) {
                    const int j = q * STRIDE_W + s - LEFT;
                    if (j < 0 || j >= MIDDLE) continue;
                    Compute& sum = sums[r][j][e];
                    if (place == r * WINDOW_W + s) sum = wrapping_sum(sum, gradients[q][e]);
                }
            }
        }
    }
}

// The windows of an average, the first row of which is row h of x.
__device__ __forceinline__ void spread(
    const Params& p, int h, int w, const Compute (&gradients)[WINDOWS][PACK], Sums (&sums)[REACH]) {
    #pragma unroll
    for (int q = 0; q < WINDOWS; ++q) {
        const Compute count = elements(p, h, w - LEFT + q * STRIDE_W), reciprocal = inverse(count);
        #pragma unroll
        for (int e = 0; e < PACK; ++e) {
            const Compute share = divided(gradients[q][e], count, reciprocal);
            #pragma unroll
            for (int r = 0; r < WINDOW_H; ++r) {
                #pragma unroll
                for (int s = 0; s < WINDOW_W; ++s) {
                    const int j = q * STRIDE_W + s - LEFT;
                    if (j >= 0 && j < MIDDLE) sums[r][j][e] += share;
                }
            }
        }
    }
}

__device__ __forceinline__ void write_row(const Params& p, int (&at)[RANK], int h, int w, const Sums& sums) {
    const int width = (int)p.image[1];
    at[ROW] = h;
    if constexpr (ALONG) {
        #pragma unroll
        for (int j = 0; j < MIDDLE; j += DX_PACK) {
            Compute some[DX_PACK];
            #pragma unroll
            for (int e = 0; e < DX_PACK; ++e) some[e] = sums[j + e][0];
            at[COL] = w + j;
            if (WHOLE_COLS || w + j < width) epilogue(p, at, some);
        }
    } else {
        #pragma unroll
        for (int j = 0; j < MIDDLE; ++j) {
            at[COL] = w + j;
            if (WHOLE_COLS || w + j < width) epilogue(p, at, sums[j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) resample_pool_backward(const __grid_constant__ Params p) {
    let_next_start();
    wait_for_launch_before();
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
    const int first = at[ROW] * TURNS, column = at[COL] * COLS, w = column * STRIDE_W;
    int h = (first - BACK) * STRIDE_H - (int)p.top;
    at[COL] = w;
    Line lines[REACH];
    Sums sums[REACH];
    #pragma unroll
    for (int r = 0; r < REACH; ++r)
        #pragma unroll
        for (int j = 0; j < MIDDLE; ++j)
            #pragma unroll
            for (int e = 0; e < PACK; ++e) sums[r][j][e] = (Compute)0;
    if constexpr (IS_MAXIMUM) {
        #pragma unroll
        for (int r = 0; r < KEPT; ++r) read_line(p, at, h + r, w, lines[r]);
    }
    #pragma unroll 1
    for (int turn = -BACK; turn < TURNS; ++turn, h += STRIDE_H) {
        Compute gradients[WINDOWS][PACK];
        read_gradients(p, at, first + turn, column, gradients);
        if constexpr (IS_MAXIMUM) {
            #pragma unroll
            for (int r = KEPT; r < WINDOW_H; ++r) read_line(p, at, h + r, w, lines[r]);
            send_back(lines, h, gradients, sums);
        } else {
            spread(p, h, w, gradients, sums);
        }
        #pragma unroll
        for (int r = 0; r < STRIDE_H; ++r) {
            const bool is_own = turn >= 0 && (!CHECK_ROWS || inside(h + r, p.image[0]));
            if (is_own) {
                int to[RANK];
                #pragma unroll
                for (int j = 0; j < RANK; ++j) to[j] = at[j];
                write_row(p, to, h + r, w, sums[r]);
            }
        }
        #pragma unroll
        for (int r = 0; r < REACH; ++r) {
            if (IS_MAXIMUM && r < KEPT) lines[r] = lines[r + STRIDE_H];
            #pragma unroll
            for (int j = 0; j < MIDDLE; ++j)
                #pragma unroll
                for (int e = 0; e < PACK; ++e) sums[r][j][e] = r < KEPT ? sums[r + STRIDE_H][j][e] : (Compute)0;
        }
    }
}
