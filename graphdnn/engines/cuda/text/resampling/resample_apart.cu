// The gradient of maxima whose windows lie beside each other. A thread has WIDTH outputs that are neighbours in memory:
// of channels, or of the last spatial axis, where ALONG neighbours of x are in one window. It finds each window's first
// maximum again, reading x in LINES packs, and writes every element of dx that its windows have.

constexpr int RANK = 5, FIRST_AXIS = CHANNELS_LAST ? 1 : 2;
constexpr int LINES = TAPS_0 * TAPS_1 * TAPS_2 / ALONG, X_WIDTH = WIDTH * ALONG;

// Where line `line` of the windows at `at` lies in x.
__device__ __forceinline__ void place_of_line(const int (&at)[RANK], int line, int (&from)[RANK]) {
    constexpr int taps2 = TAPS_2 / ALONG;
    #pragma unroll
    for (int j = 0; j < RANK; ++j) from[j] = at[j];
    from[FIRST_AXIS] = at[FIRST_AXIS] * TAPS_0 + line / taps2 / TAPS_1;
    from[FIRST_AXIS + 1] = at[FIRST_AXIS + 1] * TAPS_1 + line / taps2 % TAPS_1;
    from[FIRST_AXIS + 2] = at[FIRST_AXIS + 2] * TAPS_2 + line % taps2;
}

extern "C" __global__ void __launch_bounds__(THREADS) resample_apart(const __grid_constant__ Params p) {
    let_next_start();
    wait_for_launch_before();
    for (Count c = (Count)blockIdx.x * THREADS + threadIdx.x; c < (Count)p.count; c += (Count)gridDim.x * THREADS) {
        int at[RANK];  // of the outputs
        Count rest = c;
        #pragma unroll
        for (int j = RANK - 1; j > 0; --j) {
            at[j] = 0;
            if (j >= FIRST_AXIS && j < FIRST_AXIS + MISSING_AXES) continue;
            const Count outer = quotient(rest, p.steps[j], p.magic[j]);
            at[j] = (int)(rest - outer * (Count)p.steps[j]);
            rest = outer;
        }
        at[0] = (int)rest;
        at[RANK - 1] *= WIDTH;
        Compute x[LINES][X_WIDTH], value[WIDTH];
        int from[RANK];
        #pragma unroll
        for (int line = 0; line < LINES; ++line) {
            place_of_line(at, line, from);
            source(p, from, x[line]);
        }
        prologue(p, at, value);
        int place[WIDTH];
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            Compute most = x[0][e * ALONG];
            place[e] = 0;
            #pragma unroll
            for (int t = 1; t < LINES * ALONG; ++t) {
                const Compute next = x[t / ALONG][e * ALONG + t % ALONG];
                const bool is_more = beats(next, most);
                most = is_more ? next : most;
                place[e] = is_more ? t : place[e];
            }
        }
        #pragma unroll
        for (int line = 0; line < LINES; ++line) {
            Compute result[X_WIDTH];
            #pragma unroll
            for (int i = 0; i < X_WIDTH; ++i)
                result[i] = place[i / ALONG] == line * ALONG + i % ALONG ? value[i / ALONG] : (Compute)0;
            place_of_line(at, line, from);
            epilogue(p, from, result);
        }
    }
}
