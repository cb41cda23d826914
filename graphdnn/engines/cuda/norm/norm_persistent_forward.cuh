// Partial results of persistent CTAs in the forward direction. x stays in the type of the graph: the conversion is exact.

__device__ __forceinline__ Elements widened(const Stored& vec) {
    Elements elements;
    unpack_words(vec.x, elements.x);
    return elements;
}

// The value, or 0 if it is not finite: such a value cannot be the origin of deviations.
__device__ __forceinline__ Compute finite(Compute x) { return x - x == (Compute)0 ? x : (Compute)0; }

// Elements of a row in a split: THREADS_PER_ROW vectors in each turn, except for the end of the row.
__device__ __forceinline__ Compute elements_of(const Params& p, int split) {
    const int turns = (int)p.turns + (split < (int)p.longer);
    const int vecs = turns * THREADS_PER_ROW - (split == (int)p.last ? (int)p.missing : 0);
    return (Compute)vecs * (Compute)(ALONG ? VEC_WIDTH : 1);
}

// Partial moments of N rows: mean and sum of squared deviations. They are combined by the formula of Chan, Golub and LeVeque.
template <int N> struct Part {
    Compute elements, first[N], second[N];

    __device__ __forceinline__ void combine(const Part& other) {
        const Compute total = elements + other.elements;
        const Compute fraction = total == (Compute)0 ? (Compute)0 : other.elements / total, weight = fraction * elements;
        #pragma unroll
        for (int i = 0; i < N; ++i) {
            const Compute delta = other.first[i] - first[i];
            first[i] += delta * fraction;
            second[i] += other.second[i] + delta * delta * weight;
        }
        elements = total;
    }
};

// Combines the partial moments of a row, with weights that add up to 1.
template <int COUNT> __device__ __forceinline__ Part<1> combine_parts(const Part<1> (&part)[COUNT]) {
    Part<1> total = {};
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) total.elements += part[i].elements;
    const Compute fraction = total.elements == (Compute)0 ? (Compute)0 : (Compute)1 / total.elements;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) multiply_add(total.first[0], part[i].elements * fraction, part[i].first[0]);
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const Compute delta = part[i].first[0] - total.first[0];
        total.second[0] += part[i].second[0] + delta * delta * part[i].elements;
    }
    return total;
}

__device__ __forceinline__ Part<1> part_of(const Params& p, int split, Compute mean, Compute squares) {
    return {elements_of(p, split), {mean}, {squares}};
}

// A thread measures deviations from its own first element, which bounds the cancellation by the number of its elements. Means
// are relative to the first element of the row, so that a large mean costs no digits.
struct Running {
    Compute start[ROWS_PER_THREAD], sum[ROWS_PER_THREAD], squares[ROWS_PER_THREAD];
    Taken first;

    __device__ __forceinline__ void prepare(const Params& p, int (&at)[RANK], Row&) {
        locate_element(p, 0, at);
        load_elements(p, at, first, evict_normal_policy());
    }

    __device__ __forceinline__ void begin(const Stored& vec) {
        const Elements elements_x = widened(vec);
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            start[i] = CENTERED ? finite(elements_x.x[i]) : (Compute)0;
            sum[i] = squares[i] = (Compute)0;
        }
    }

    __device__ __forceinline__ void add(const Stored& vec, const Row&) {
        const Elements elements_x = widened(vec);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            const int i = row_of(e);
            const Compute deviation = CENTERED ? elements_x.x[e] - start[i] : elements_x.x[e];
            if (CENTERED) sum[i] += deviation;
            multiply_add(squares[i], deviation, deviation);
        }
    }

    __device__ __forceinline__ Compute origin(int i) const {
        return CENTERED ? finite(widen<Compute>(first.x.data[i])) : (Compute)0;
    }

    __device__ __forceinline__ Part<ROWS_PER_THREAD> part(const Params&, Count vecs) const {
        Part<ROWS_PER_THREAD> partial;
        partial.elements = (Compute)vecs * (Compute)(ALONG ? VEC_WIDTH : 1);
        const Compute fraction = vecs == 0 ? (Compute)0 : (Compute)1 / partial.elements;
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            const Compute from_start = sum[i] * fraction, squared_deviations = squares[i] - sum[i] * from_start;
            partial.first[i] = CENTERED && vecs != 0 ? start[i] - origin(i) + from_start : (Compute)0;
            partial.second[i] = CENTERED && squared_deviations < (Compute)0 ? (Compute)0 : squared_deviations;
        }
        return partial;
    }

    // Loads the factors of the rows while the CTA waits.
    __device__ __forceinline__ void load_factors(const Params& p, const int (&at)[RANK], Row& row) const {
        of_row(p, at, row);
    }

    __device__ __forceinline__ void set_factors(const Vec<Compute, 2>& factors, int i, Row& row) const {
        row.mean[i] = origin(i) + factors.data[0];
        row.inverse[i] = SCALED ? factors.data[1] * row.scale[i] : factors.data[1];  // one factor for each element
    }

    // Stores row i of the thread.
    __device__ __forceinline__ void store(
        const Params& p, const int (&at)[RANK], int i, const Vec<Compute, 2>& stored, const Row& row
    ) const {
        Compute mean = (Compute)0;
        #pragma unroll
        for (int j = 0; j < ROWS_PER_THREAD; ++j)
            if (i == j) mean = CENTERED ? row.mean[j] : (Compute)0;
        finish(p, at, i, mean, stored.data[0], stored.data[1]);
    }
};

// The factors that each thread of a row needs: the mean, relative to the row's first element, and the inverse deviation.
__device__ __forceinline__ Vec<Compute, 2> factors_of(const Params& p, const Part<1>& row) {
    return {row.first[0], inverse_deviation(row.second[0] / (Compute)p.elements, epsilon(p))};
}

// The stored results besides the mean: variance and inverse deviation.
__device__ __forceinline__ Vec<Compute, 2> results_of(const Params& p, const Part<1>& row) {
    const Compute variance = row.second[0] / (Compute)p.elements;
    return {variance, inverse_deviation(variance, epsilon(p))};
}
