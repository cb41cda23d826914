// The gradient of pooling whose windows lie apart: an element of x is in one window at most. A thread has WIDTH windows that
// are neighbours in memory, one for each of some channels or so many along a row (ALONG), reads their elements and writes
// what each of them gets: a share, or all where it is the first that has the maximum. What no window reaches gets nothing.

constexpr int TAPS = TAPS_0 * TAPS_1 * TAPS_2;
constexpr int OF_ACCESS = ALONG ? X_WIDTH : 1;                     // elements of a row
constexpr int ACCESSES = (ALONG ? WIDTH * TAPS_2 : TAPS_2) / OF_ACCESS;

// Nobody looks for a maximum where everybody gets a share.
template <int V> __device__ void prologue(const Params&, const int (&)[RANK], Compute (&)[V]) {}

// Element e of an access to part `part` of a row: of which window it is, and which of its taps.
__device__ __forceinline__ int window_of(int part, int e) { return ALONG ? (part * OF_ACCESS + e) / TAPS_2 : e; }
__device__ __forceinline__ int tap_of_row(int part, int e) { return ALONG ? (part * OF_ACCESS + e) % TAPS_2 : part; }

// Every access to the windows at `at`, in the order of taps: each(row of taps, part of it, coordinates in x).
template <class Each> __device__ __forceinline__ void over_accesses(const int (&at)[RANK], Each each) {
    int to[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) to[j] = at[j];
    #pragma unroll
    for (int t0 = 0; t0 < TAPS_0; ++t0)
        #pragma unroll
        for (int t1 = 0; t1 < TAPS_1; ++t1)
            #pragma unroll
            for (int part = 0; part < ACCESSES; ++part) {
                to[FIRST_AXIS] = at[FIRST_AXIS] * TAPS_0 + t0;
                to[FIRST_AXIS + 1] = at[FIRST_AXIS + 1] * TAPS_1 + t1;
                to[FIRST_AXIS + 2] = at[FIRST_AXIS + 2] * TAPS_2 + part * OF_ACCESS;
                each((t0 * TAPS_1 + t1) * TAPS_2, part, to);
            }
}

extern "C" __global__ void __launch_bounds__(THREADS) resample_apart_backward(const __grid_constant__ Params p) {
    let_next_start();
    wait_for_launch_before();
    const Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= (Count)p.count) return;
    int at[RANK];
    coordinates(i, p, at);
    bool is_window = true;
    #pragma unroll
    for (int axis = 0; axis < 3; ++axis) is_window = is_window && at[FIRST_AXIS + axis] < (int)p.outputs[axis];
    Compute sent[WIDTH] = {}, value[WIDTH][TAPS];
    Chosen<TAPS> gets[WIDTH];
    if (is_window) {
        gradient(p, at, sent);
        if constexpr (IS_MAXIMUM)
            over_accesses(at, [&](int row, int part, const int (&from)[RANK]) {
                Compute some[X_WIDTH];
                prologue(p, from, some);
                #pragma unroll
                for (int e = 0; e < X_WIDTH; ++e) value[window_of(part, e)][row + tap_of_row(part, e)] = plain(some[e]);
            });
    }
    #pragma unroll
    for (int q = 0; q < WIDTH; ++q) {
        gets[q] = first_of(value[q], is_window && IS_MAXIMUM ? largest_of(value[q]) : (Compute)0);
        if constexpr (!IS_MAXIMUM) sent[q] /= (Compute)TAPS;
    }
    over_accesses(at, [&](int row, int part, const int (&to)[RANK]) {
        Compute some[X_WIDTH];
        #pragma unroll
        for (int e = 0; e < X_WIDTH; ++e) {
            const int q = window_of(part, e);
            some[e] = gets[q].is[row + tap_of_row(part, e)] ? sent[q] : (Compute)0;
        }
        bool is_inside = true;
        #pragma unroll
        for (int axis = 0; axis < 3; ++axis) is_inside = is_inside && to[FIRST_AXIS + axis] < (int)p.image[axis];
        if (WHOLE || is_inside) epilogue(p, to, some);
    });
}
