// Pooling with a window known to the compiler. A thread computes COLS neighbouring outputs of ROWS rows, PACK channels of
// each; what the windows share is read once.
//
//     x     [ LEFT | COLS * STRIDE_W elements, aligned | rest ]     one row: SPAN elements, times PACK channels
//     y            [ COLS outputs ]
//
// Where x and y run along channels (PACK > 1) every element of a row is an access of its own; where they run along the row,
// the aligned middle is read in accesses of X_PACK, and the few elements beside it one by one. There the rows that the
// next output row reads again stay in registers.

constexpr int SPAN = (COLS - 1) * STRIDE_W + WINDOW_W, MIDDLE = COLS * STRIDE_W;
constexpr int HELD = CHANNELS_LAST || SPAN > LEFT + MIDDLE ? SPAN : LEFT + MIDDLE;
constexpr int KEPT_ROWS = KEEP && WINDOW_H > STRIDE_H ? WINDOW_H - STRIDE_H : 0;
constexpr bool IS_MAXIMUM = MODE == MAXIMUM;

typedef Compute Row[HELD][PACK];

// Widths that this variant does not use: branches that are never taken name them.
template <int V> __device__ void prologue(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void prologue_one(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V>
__device__ void epilogue(const Params&, const int (&)[RANK], const Compute (&)[V], const int (&)[V]) {}

__device__ __forceinline__ bool inside(int i, long long size) { return (unsigned int)i < (unsigned int)size; }

// Row h of x from column w on; zeros outside.
__device__ __forceinline__ void load_row(const Params& p, const int (&at)[RANK], int h, int w, Row& row) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[FIRST_AXIS + 1] = h;
    const bool row_inside = inside(h, p.image[1]);
    if constexpr (CHANNELS_LAST || X_PACK == 1) {
        #pragma unroll
        for (int j = 0; j < SPAN; ++j) {
            #pragma unroll
            for (int e = 0; e < PACK; ++e) row[j][e] = (Compute)0;
            from[FIRST_AXIS + 2] = w + j;
            if (row_inside && inside(w + j, p.image[2])) prologue(p, from, row[j]);
        }
    } else {
        #pragma unroll
        for (int j = 0; j < HELD; ++j) row[j][0] = (Compute)0;
        #pragma unroll
        for (int j = 0; j < SPAN; ++j) {
            if (j >= LEFT && j < LEFT + MIDDLE) continue;
            from[FIRST_AXIS + 2] = w + j;
            if (row_inside && inside(w + j, p.image[2])) prologue_one(p, from, row[j]);
        }
        #pragma unroll
        for (int j = 0; j < MIDDLE; j += X_PACK) {
            from[FIRST_AXIS + 2] = w + LEFT + j;
            if (!row_inside || !inside(w + LEFT + j, p.image[2])) continue;
            Compute some[X_PACK];
            prologue(p, from, some);
            #pragma unroll
            for (int e = 0; e < X_PACK; ++e) row[LEFT + j + e][0] = some[e];
        }
    }
}

// One row of outputs while rows of x arrive.
struct Outputs {
    Compute best[COLS][PACK];
    int place[COLS][PACK];
    bool seen[COLS];
    Compute column[SPAN][PACK];

    __device__ __forceinline__ void add(const Params& p, int r, int h, int w, const Row& row) {
        if constexpr (IS_MAXIMUM) add_maximum(p, r, h, w, row);
        else add_sum(r, row);
    }

    // Columns first, as the host sums; -0 is what adding leaves alone.
    __device__ __forceinline__ void add_sum(int r, const Row& row) {
        #pragma unroll
        for (int j = 0; j < SPAN; ++j)
            #pragma unroll
            for (int e = 0; e < PACK; ++e) column[j][e] = (r ? column[j][e] : -(Compute)0) + row[j][e];
    }

    __device__ __forceinline__ void add_maximum(const Params& p, int r, int h, int w, const Row& row) {
        const bool row_counts = !ABSENT || inside(h, p.image[1]);
        #pragma unroll
        for (int q = 0; q < COLS; ++q) {
            #pragma unroll
            for (int s = 0; s < WINDOW_W; ++s) {
                const int j = q * STRIDE_W + s;
                const bool counts = row_counts && (!ABSENT || inside(w + j, p.image[2]));
                const bool first = (r == 0 && s == 0) || (ABSENT && !seen[q]);
                #pragma unroll
                for (int e = 0; e < PACK; ++e) {
                    if (r == 0 && s == 0) best[q][e] = lowest<Compute>(), place[q][e] = 0;
                    const bool better = counts && (first || beats(row[j][e], best[q][e]));
                    best[q][e] = better ? row[j][e] : best[q][e];
                    if constexpr (INDEX) place[q][e] = better ? r * WINDOW_W + s : place[q][e];
                }
                if constexpr (ABSENT) seen[q] = (r == 0 && s == 0 ? false : seen[q]) || counts;
            }
        }
    }

    __device__ __forceinline__ void finish(const Params& p, int h, int w) {
        if constexpr (!IS_MAXIMUM) divide(p, h, w);
        else if constexpr (INDEX && ABSENT) place_padding(p, h);
    }

    // The index of a window of nothing but padding: in its first row that is inside, where there is one.
    __device__ __forceinline__ void place_padding(const Params& p, int h) {
        const bool some = h < (int)p.image[1] && h + WINDOW_H > 0;
        #pragma unroll
        for (int q = 0; q < COLS; ++q)
            #pragma unroll
            for (int e = 0; e < PACK; ++e)
                if (!seen[q] && some) place[q][e] = (h < 0 ? -h : 0) * WINDOW_W;
    }

    __device__ __forceinline__ void divide(const Params& p, int h, int w) {
        #pragma unroll
        for (int q = 0; q < COLS; ++q) {
            const Compute count = elements(p, h, w + q * STRIDE_W), reciprocal = (Compute)1 / count;
            #pragma unroll
            for (int e = 0; e < PACK; ++e) {
                Compute sum = -(Compute)0;
                #pragma unroll
                for (int s = 0; s < WINDOW_W; ++s) sum += column[q * STRIDE_W + s][e];
                best[q][e] = divided(sum, count, reciprocal);
            }
        }
    }

    __device__ __forceinline__ Compute elements(const Params& p, int h, int w) const {
        if constexpr (MODE == AVERAGE_INCLUDING) return (Compute)(WINDOW_H * WINDOW_W);
        const int height = (int)p.image[1], width = (int)p.image[2];
        const int rows = (h + WINDOW_H < height ? h + WINDOW_H : height) - (h > 0 ? h : 0);
        const int columns = (w + WINDOW_W < width ? w + WINDOW_W : width) - (w > 0 ? w : 0);
        return (Compute)(rows > 0 && columns > 0 ? rows * columns : 1);
    }

    // The quotient as a division rounds it (P. Markstein); infinities leave no rest.
    __device__ __forceinline__ static float divided(float sum, float count, float reciprocal) {
        const float near = sum * reciprocal, rest = fmaf(-near, count, sum);
        return rest == rest ? fmaf(rest, reciprocal, near) : near;
    }
    template <class T> __device__ __forceinline__ static T divided(T sum, T count, T) { return sum / count; }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) resample_pool(const __grid_constant__ Params p) {
    const Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) return;
    // Coordinates in steps of what a thread computes.
    int at[RANK];
    Count rest = i;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        at[j] = 0;
        if (j == FIRST_AXIS) continue;
        const Count outer = quotient(rest, p.steps[j], p.magic[j]);
        at[j] = (int)(rest - outer * (Count)p.steps[j]);
        rest = outer;
    }
    at[0] = (int)rest;
    at[FIRST_AXIS + 1] *= ROWS;
    at[FIRST_AXIS + 2] *= COLS;
    if constexpr (CHANNELS_LAST) at[RANK - 1] *= PACK;

    const int o1 = at[FIRST_AXIS + 1], o2 = at[FIRST_AXIS + 2];
    const int w = o2 * STRIDE_W - (int)p.left;
    int h = o1 * STRIDE_H + (int)p.start[1];
    Row rows[KEEP ? WINDOW_H : 1];
    #pragma unroll
    for (int r = 0; r < KEPT_ROWS; ++r) load_row(p, at, h + r, w, rows[KEEP ? r : 0]);
    #pragma unroll(KEEP ? ROWS : 1)
    for (int row = 0; row < ROWS; ++row) {
        if (o1 + row >= (int)p.outputs[1]) break;
        Outputs outputs;
        if constexpr (KEEP) {
            #pragma unroll
            for (int r = KEPT_ROWS; r < WINDOW_H; ++r) load_row(p, at, h + r, w, rows[r]);
        }
        #pragma unroll
        for (int r = 0; r < WINDOW_H; ++r) {
            if constexpr (!KEEP) load_row(p, at, h + r, w, rows[0]);
            outputs.add(p, r, h + r, w, rows[KEEP ? r : 0]);
        }
        outputs.finish(p, h, w);
        at[FIRST_AXIS + 1] = o1 + row;
        if constexpr (CHANNELS_LAST) {
            #pragma unroll
            for (int q = 0; q < COLS; ++q) {
                at[FIRST_AXIS + 2] = o2 + q;
                if (o2 + q < (int)p.outputs[2]) epilogue(p, at, outputs.best[q], outputs.place[q]);
            }
        } else {
            Compute result[COLS];
            int place[COLS];
            #pragma unroll
            for (int q = 0; q < COLS; ++q) {
                result[q] = outputs.best[q][0];
                if constexpr (INDEX) place[q] = outputs.place[q][0];
            }
            epilogue(p, at, result, place);
        }
        if constexpr (KEEP) {
            #pragma unroll
            for (int r = 0; r < KEPT_ROWS; ++r)
                #pragma unroll
                for (int j = 0; j < HELD; ++j) rows[r][j][0] = rows[r + STRIDE_H][j][0];
        }
        h += STRIDE_H;
    }
}
