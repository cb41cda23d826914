// Partial results of persistent CTAs in the backward direction.

// Partial sums of N rows: of the gradient, and of its product with x minus the mean.
template <int N> struct Part {
    Compute elements, first[N], second[N];

    __device__ __forceinline__ void combine(const Part& other) {
        #pragma unroll
        for (int i = 0; i < N; ++i) first[i] += other.first[i], second[i] += other.second[i];
    }
};

// Combines the partial sums of a row.
template <int COUNT> __device__ __forceinline__ Part<1> combine_parts(const Part<1> (&part)[COUNT]) {
    Part<1> total = part[COUNT - 1];  // the result of the previous batch
    #pragma unroll
    for (int i = 0; i < COUNT - 1; ++i) total.combine(part[i]);
    return total;
}

__device__ __forceinline__ Part<1> part_of(const Params&, int, Compute sum, Compute dot) {
    return {(Compute)0, {sum}, {dot}};
}

struct Running {
    Compute sum[ROWS_PER_THREAD], dot[ROWS_PER_THREAD];

    __device__ __forceinline__ void prepare(const Params& p, const int (&at)[RANK], Row& row) const { of_row(p, at, row); }

    __device__ __forceinline__ void begin(const Stored&) {
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) sum[i] = dot[i] = (Compute)0;
    }

    __device__ __forceinline__ void add(const Stored& vec, const Row& row) {
        const Elements elements = widened(vec);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            sum[row_of(e)] += elements.g[e];
            multiply_add(dot[row_of(e)], elements.g[e], centered(elements, row, e));
        }
    }

    __device__ __forceinline__ Part<ROWS_PER_THREAD> part(const Params&, Count) const {
        Part<ROWS_PER_THREAD> partial;
        partial.elements = (Compute)0;
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) partial.first[i] = sum[i], partial.second[i] = dot[i];
        return partial;
    }

    // Loads all factors of the rows again while the CTA waits. Most of them were not needed before, so no register held them.
    __device__ __forceinline__ void load_factors(const Params& p, const int (&at)[RANK], Row& row) const {
        int row_at[RANK];
        #pragma unroll
        for (int j = 0; j < RANK; ++j) row_at[j] = at[j];
#ifdef __CUDA_ARCH__
        asm volatile("" : "+r"(row_at[ROW_AXES - 1]));
#endif
        of_row(p, row_at, row);
    }

    __device__ __forceinline__ void set_factors(const Vec<Compute, 2>& factors, int i, Row& row) const {
        const Compute scale = row.scale[i] * row.inverse[i];
        row.sum[i] = CENTERED ? -scale * factors.data[0] : (Compute)0;
        row.dot[i] = -scale * (factors.data[1] * row.inverse[i]) * row.inverse[i];
        row.scale[i] = scale;
    }

    // Stores row i of the thread.
    __device__ __forceinline__ void store(
        const Params& p, const int (&at)[RANK], int i, const Vec<Compute, 2>& stored, const Row& row
    ) const {
        Compute inverse = (Compute)0;
        #pragma unroll
        for (int j = 0; j < ROWS_PER_THREAD; ++j)
            if (i == j) inverse = row.inverse[j];
        finish(p, at, i, stored.data[0], stored.data[1] * inverse);
    }
};

// The factors that each thread of a row needs: means over the row.
__device__ __forceinline__ Vec<Compute, 2> factors_of(const Params& p, const Part<1>& row) {
    return {row.first[0] / (Compute)p.elements, row.second[0] / (Compute)p.elements};
}

// The stored results: the sums.
__device__ __forceinline__ Vec<Compute, 2> results_of(const Params&, const Part<1>& row) {
    return {row.first[0], row.second[0]};
}
