// Rows of time steps. The rows of all steps are consecutive. Sequences are sorted by length, so a step has the first ones only.

__device__ __forceinline__ int first_row(const Params& p, int t) { return p.starts[t]; }
__device__ __forceinline__ int sequences(const Params& p, int t) { return p.starts[t + 1] - p.starts[t]; }

// The row of sequence b in the previous step, or with `back` in the following step; -1 if there is none.
__device__ __forceinline__ int row_before(const Params& p, int t, int b, bool back) {
    const int other = back ? t + 1 : t - 1;
    if (other < 0 || other >= (int)p.steps) return -1;
    return b < sequences(p, other) ? first_row(p, other) + b : -1;
}

// The last row of sequence b.
__device__ __forceinline__ int last_row(const Params& p, int b) {
    int t = (int)p.steps - 1;
    while (sequences(p, t) <= b) --t;
    return first_row(p, t) + b;
}
