// The elements of a row of x that a thread of resample_pool.cu reads: SPAN vectors of VEC_WIDTH elements.
//
//     x     [ LEFT | MIDDLE = COLS * STRIDE_W elements | right ]
//     y            [ COLS outputs ]          and BESIDE more outputs that read elements of the middle
//
// The last axis is vectorized. If it is not the axis of columns, each column is an access of its own (VEC_WIDTH > 1). If ALONG,
// it is the axis of columns: the middle is read in accesses of X_VEC_WIDTH, and the elements beside it come from other lanes
// (SHARE) or from accesses of HALO elements. No branch separates the loads, so many are in flight. Addresses outside x are
// clamped to its edge; if padding counts as zeros, the values are replaced.
//
// Required constants (from the generator):
//   RANK: axes of the index space; ROW, COL: positions of the two axes of windows; ALONG: 1 if columns are contiguous.
//   COLS: columns of a thread; VEC_WIDTH: elements of each column, 1 if ALONG; X_VEC_WIDTH: elements of an access to the middle.
//   HALO: elements of an access beside the middle, 1 to X_VEC_WIDTH; SHARE: 1 if other lanes supply the elements beside the
//   middle.
//   WINDOW_H, WINDOW_W, STRIDE_W: extents and stride of windows; LEFT: elements before the middle; BESIDE: see above, 0 or more.
//   ZEROS: 1 if padding counts as zeros; CHECK_ROWS: 1 if rows may be outside x; X_WHOLE: 1 if the middles cover x exactly.
//   CHECKED_FROM: the first element of a span that may be beyond the end of x, 0 to SPAN.
//   EXACT: 1 if quotients are correctly rounded; EXCLUDING: 1 if averages count elements of x only.

constexpr int SPAN = (COLS + BESIDE - 1) * STRIDE_W + WINDOW_W, MIDDLE = COLS * STRIDE_W;
constexpr int RIGHT = SPAN > LEFT + MIDDLE ? SPAN - LEFT - MIDDLE : 0;
constexpr int BEFORE = (LEFT + HALO - 1) / HALO * HALO, AFTER = (RIGHT + HALO - 1) / HALO * HALO;

typedef Compute Span[SPAN][VEC_WIDTH];
typedef Compute Held[BEFORE + MIDDLE + AFTER];  // a contiguous row, from element -BEFORE on

// Widths that this variant does not use; branches that are never taken name them.
template <int V> __device__ void prologue(const Params&, const int (&)[RANK], Compute (&)[V]) {}
template <int V> __device__ void prologue_halo(const Params&, const int (&)[RANK], Compute (&)[V]) {}

__device__ __forceinline__ bool inside(int i, long long size) { return (unsigned int)i < (unsigned int)size; }

// The correctly rounded quotient (P. Markstein), needed if the result decides an integer. An infinite quotient has no
// remainder.
__device__ __forceinline__ float divided(float sum, float count, float reciprocal) {
    const float near = sum * reciprocal;
    if constexpr (!EXACT) return near;
    const float rest = fmaf(-near, count, sum);
    return rest == rest ? fmaf(rest, reciprocal, near) : near;
}
template <class T> __device__ __forceinline__ T divided(T sum, T count, T) { return sum / count; }

// The reciprocal of a small integer.
template <class T> __device__ __forceinline__ T inverse(T count) { return (T)1 / count; }
#ifdef __CUDA_ARCH__
template <> __device__ __forceinline__ float inverse(float count) {
    if constexpr (EXACT || !EXCLUDING) return 1.0f / count;
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(count));
    return fmaf(near, fmaf(-count, near, 1.0f), near);
}
#endif

// The divisor of the window at (h, w).
__device__ __forceinline__ Compute elements(const Params& p, int h, int w) {
    if constexpr (!EXCLUDING) return (Compute)(WINDOW_H * WINDOW_W);
    const int height = (int)p.image[0], width = (int)p.image[1];
    const int rows = (h + WINDOW_H < height ? h + WINDOW_H : height) - (h > 0 ? h : 0);
    const int columns = (w + WINDOW_W < width ? w + WINDOW_W : width) - (w > 0 ? w : 0);
    return (Compute)(rows > 0 && columns > 0 ? rows * columns : 1);
}

__device__ __forceinline__ int clamped(int i, int last) { return i < 0 ? 0 : i > last ? last : i; }

// Whether element `first` + j is one of `size` elements. If `whole`, each thread has THEIRS elements from a multiple of THEIRS
// on; then the answer for elements beyond its own does not depend on j.
template <int THEIRS> __device__ __forceinline__ bool is_within(int first, int j, long long size, bool whole) {
    if (!whole || j < -THEIRS || j >= 2 * THEIRS) return inside(first + j, size);
    return j < 0 ? first > 0 : j < THEIRS || first + THEIRS < (int)size;
}

// Whether element j of a span may be outside x.
__device__ constexpr bool may_be_outside(int j) { return j < LEFT || j >= CHECKED_FROM; }

// Loads V elements from j on.
template <int V>
__device__ __forceinline__ void read_piece(const Params& p, int (&from)[RANK], int w, int j, Held& held) {
    const int width = (int)p.image[1];
    Compute some[V];
    from[COL] = clamped(w + j, width - V);
    if constexpr (V == X_VEC_WIDTH) prologue(p, from, some);
    else prologue_halo(p, from, some);
    const bool counts = !may_be_outside(j + LEFT) || is_within<MIDDLE>(w, j, width, X_WHOLE);
    #pragma unroll
    for (int e = 0; e < V; ++e) held[BEFORE + j + e] = ZEROS && !counts ? (Compute)0 : some[e];
}

// For the lower half of a warp, the element before the first lane's; for the upper half, the element after the last lane's.
struct Ends {
    int at[RANK], down;
};

__device__ __forceinline__ Ends ends_of_warp(const Params& p, const int (&at)[RANK], int h, int w) {
    const bool is_lower = threadIdx.x % 32 < 16;
    const int thread = is_lower ? 0 : 31;
    Ends ends;
    #pragma unroll
    for (int j = 0; j < RANK; ++j) ends.at[j] = __shfl_sync(~0u, at[j], thread);
    ends.down = __shfl_sync(~0u, h, thread) - h;
    ends.at[COL] = clamped(__shfl_sync(~0u, w, thread) + (is_lower ? -HALO : MIDDLE), (int)p.image[1] - HALO);
    return ends;
}

// Loads the elements beside the middle from other lanes. Half of the warp reads those beyond each end of the warp's elements.
__device__ __forceinline__ void share(const Params& p, const Ends& ends, int h, int w, Held& held) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = ends.at[j];
    from[ROW] = clamped(h + ends.down, (int)p.image[0] - 1);
    Compute beyond[HALO];
    if constexpr (HALO == X_VEC_WIDTH) prologue(p, from, beyond);
    else prologue_halo(p, from, beyond);
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int e = BEFORE - LEFT; e < BEFORE; ++e) {
        const Compute left = __shfl_up_sync(~0u, held[MIDDLE + e], 1);
        held[e] = ZEROS && w == 0 ? (Compute)0 : lane == 0 ? beyond[e] : left;
    }
    #pragma unroll
    for (int e = 0; e < RIGHT; ++e) {
        const Compute right = __shfl_down_sync(~0u, held[BEFORE + e], 1);
        const bool is_outside = ZEROS && w + MIDDLE >= (int)p.image[1];
        held[BEFORE + MIDDLE + e] = is_outside ? (Compute)0 : lane == 31 ? beyond[e] : right;
    }
}

__device__ __forceinline__ void read_along(
    const Params& p, const Ends& ends, int (&from)[RANK], int h, int w, Span& span) {
    Held held;
    #pragma unroll
    for (int j = 0; j < MIDDLE; j += X_VEC_WIDTH) read_piece<X_VEC_WIDTH>(p, from, w, j, held);
    if constexpr (SHARE) {
        share(p, ends, h, w, held);
    } else {
        #pragma unroll
        for (int j = -BEFORE; j < 0; j += HALO) read_piece<HALO>(p, from, w, j, held);
        #pragma unroll
        for (int j = MIDDLE; j < MIDDLE + AFTER; j += HALO) read_piece<HALO>(p, from, w, j, held);
    }
    if constexpr (!ZEROS) {  // the clamped element has another position in its access
        #pragma unroll
        for (int j = -1; j >= -BEFORE; --j)
            if (!is_within<MIDDLE>(w, j, p.image[1], X_WHOLE)) held[BEFORE + j] = held[BEFORE + j + 1];
        #pragma unroll
        for (int j = 1 - BEFORE; j < MIDDLE + AFTER; ++j)
            if (may_be_outside(j + LEFT) && w + j >= 0 && !is_within<MIDDLE>(w, j, p.image[1], X_WHOLE))
                held[BEFORE + j] = held[BEFORE + j - 1];
    }
    #pragma unroll
    for (int j = 0; j < SPAN; ++j) span[j][0] = held[BEFORE - LEFT + j];
}

__device__ __forceinline__ void read_span(
    const Params& p, const Ends& ends, const int (&at)[RANK], int h, int w, Span& span) {
    int from[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[ROW] = CHECK_ROWS ? clamped(h, (int)p.image[0] - 1) : h;
    if constexpr (ALONG) {
        read_along(p, ends, from, h, w, span);
    } else {
        #pragma unroll
        for (int j = 0; j < SPAN; ++j) {
            const int column = w - LEFT + j;
            from[COL] = may_be_outside(j) ? clamped(column, (int)p.image[1] - 1) : column;
            prologue(p, from, span[j]);
            if (ZEROS && may_be_outside(j) && !inside(column, p.image[1])) {
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) span[j][e] = (Compute)0;
            }
        }
    }
}
