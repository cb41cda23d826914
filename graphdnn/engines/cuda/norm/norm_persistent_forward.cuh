// Partial results of persistent CTAs in the forward direction. x stays in the type of the graph: the conversion is exact.

__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    widen_pack(pack.x, elements.x);
    return elements;
}

// The value, or 0 if it is not finite: such a value cannot be the origin of deviations.
__device__ __forceinline__ Compute finite(Compute x) { return x - x == (Compute)0 ? x : (Compute)0; }

// Elements of a row in a split: LANES vectors in each turn, except for the end of the row.
__device__ __forceinline__ Compute elements_of(const Params& p, int split) {
    const int turns = (int)p.turns + (split < (int)p.longer);
    const int packs = turns * LANES - (split == (int)p.last ? (int)p.missing : 0);
    return (Compute)packs * (Compute)(ALONG ? VECTOR : 1);
}

// Partial moments of N rows: mean and sum of squared deviations. They are combined by the formula of Chan, Golub and LeVeque.
template <int N> struct Part {
    Compute elements, first[N], second[N];

    __device__ __forceinline__ void join(const Part& other) {
        const Compute both = elements + other.elements;
        const Compute share = both == (Compute)0 ? (Compute)0 : other.elements / both, weight = share * elements;
        #pragma unroll
        for (int i = 0; i < N; ++i) {
            const Compute apart = other.first[i] - first[i];
            first[i] += apart * share;
            second[i] += other.second[i] + apart * apart * weight;
        }
        elements = both;
    }
};

// Combines the partial moments of a row, with weights that add up to 1.
template <int COUNT> __device__ __forceinline__ Part<1> together(const Part<1> (&part)[COUNT]) {
    Part<1> all = {};
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) all.elements += part[i].elements;
    const Compute share = all.elements == (Compute)0 ? (Compute)0 : (Compute)1 / all.elements;
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) multiply_add(all.first[0], part[i].elements * share, part[i].first[0]);
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const Compute apart = part[i].first[0] - all.first[0];
        all.second[0] += part[i].second[0] + apart * apart * part[i].elements;
    }
    return all;
}

__device__ __forceinline__ Part<1> part_of(const Params& p, int split, Compute mean, Compute squares) {
    return {elements_of(p, split), {mean}, {squares}};
}

// A thread measures deviations from its own first element, which bounds the cancellation by the number of its elements. Means
// are relative to the first element of the row, so that a large mean costs no digits.
struct Running {
    Compute start[ROW_WIDTH], sum[ROW_WIDTH], squares[ROW_WIDTH];
    Taken first;

    __device__ __forceinline__ void prepare(const Params& p, int (&at)[RANK], Row&) {
        locate_element(p, 0, at);
        take(p, at, first, read_again());
    }

    __device__ __forceinline__ void begin(const Stored& pack) {
        const Elements mine = widened(pack);
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            start[i] = CENTERED ? finite(mine.x[i]) : (Compute)0;
            sum[i] = squares[i] = (Compute)0;
        }
    }

    __device__ __forceinline__ void add(const Stored& pack, const Row&) {
        const Elements more = widened(pack);
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            const int i = row_of(e);
            const Compute deviation = CENTERED ? more.x[e] - start[i] : more.x[e];
            if (CENTERED) sum[i] += deviation;
            multiply_add(squares[i], deviation, deviation);
        }
    }

    __device__ __forceinline__ Compute origin(int i) const {
        return CENTERED ? finite(widen<Compute>(first.x.data[i])) : (Compute)0;
    }

    __device__ __forceinline__ Part<ROW_WIDTH> part(const Params&, Count packs) const {
        Part<ROW_WIDTH> found;
        found.elements = (Compute)packs * (Compute)(ALONG ? VECTOR : 1);
        const Compute share = packs == 0 ? (Compute)0 : (Compute)1 / found.elements;
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            const Compute from_start = sum[i] * share, rest = squares[i] - sum[i] * from_start;
            found.first[i] = CENTERED && packs != 0 ? start[i] - origin(i) + from_start : (Compute)0;
            found.second[i] = CENTERED && rest < (Compute)0 ? (Compute)0 : rest;
        }
        return found;
    }

    // Loads the factors of the rows while the CTA waits.
    __device__ __forceinline__ void prepare_end(const Params& p, const int (&at)[RANK], Row& row) const {
        of_row(p, at, row);
    }

    __device__ __forceinline__ void conclude(const Vec<Compute, 2>& needed, int i, Row& row) const {
        row.mean[i] = origin(i) + needed.data[0];
        row.inverse[i] = SCALED ? needed.data[1] * row.scale[i] : needed.data[1];  // one factor for each element
    }

    // Stores row i of the thread.
    __device__ __forceinline__ void store(
        const Params& p, const int (&at)[RANK], int i, const Vec<Compute, 2>& stored, const Row& row
    ) const {
        Compute whole = (Compute)0;
        #pragma unroll
        for (int j = 0; j < ROW_WIDTH; ++j)
            if (i == j) whole = CENTERED ? row.mean[j] : (Compute)0;
        finish(p, at, i, whole, stored.data[0], stored.data[1]);
    }
};

// The factors that each thread of a row needs: the mean, relative to the row's first element, and the inverse deviation.
__device__ __forceinline__ Vec<Compute, 2> needed_of(const Params& p, const Part<1>& row) {
    return {row.first[0], inverse_deviation(row.second[0] / (Compute)p.elements, epsilon(p))};
}

// The stored results besides the mean: variance and inverse deviation.
__device__ __forceinline__ Vec<Compute, 2> stored_of(const Params& p, const Part<1>& row) {
    const Compute variance = row.second[0] / (Compute)p.elements;
    return {variance, inverse_deviation(variance, epsilon(p))};
}
