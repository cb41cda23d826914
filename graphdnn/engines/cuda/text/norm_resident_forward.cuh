// What blocks that stay find of x. They keep it in the type that the graph gives it: widening changes nothing.

__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) elements.x[e] = widen<Compute>(pack.x.at[e]);
    return elements;
}

// A number, or 0: nothing can count from what is none.
__device__ __forceinline__ Compute finite(Compute x) { return x - x == (Compute)0 ? x : (Compute)0; }

__device__ __forceinline__ Compute elements_of(const Params& p, Count split) {
    const Count begin = split * (Count)p.per_split, rest = (Count)p.count - begin;
    return (Compute)(rest < (Count)p.per_split ? rest : (Count)p.per_split) * (Compute)(ALONG ? VECTOR : 1);
}

// Moments of a part of a row: mean and sum of squared deviations. They join by the formula of Chan, Golub and LeVeque.
struct Part {
    Compute elements, first, second;

    Part() = default;
    __device__ __forceinline__ Part(const Params& p, Count split, Compute mean, Compute squares)
        : elements(elements_of(p, split)), first(mean), second(squares) {}
    __device__ __forceinline__ void join(const Part& other) {
        const Compute both = elements + other.elements, share = other.elements / both, apart = other.first - first;
        first += apart * share;
        second += other.second + apart * apart * (share * elements);
        elements = both;
    }
};

// Moments of a thread count from an element of its own, which bounds what cancels by the number of its elements. Means
// count from the first element of the row, so that one far from zero costs no digits.
struct Running {
    Compute start[ROW_WIDTH], sum[ROW_WIDTH], squares[ROW_WIDTH];
    Stored first;

    __device__ __forceinline__ void begin(const Params& p, int (&at)[RANK], Count own, Row&) {
        locate_element(p, 0, at);
        take(p, at, first);
        Stored pack;
        locate_element(p, own, at);
        take(p, at, pack);
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
        return CENTERED ? finite(widen<Compute>(first.x.at[i])) : (Compute)0;
    }

    // The threads' moments become the block's. `packs`: how many this thread has.
    __device__ __forceinline__ void join(
        const Params& p, const Place& here, Count packs, Compute (&mean)[ROW_WIDTH], Compute (&joined)[ROW_WIDTH]
    ) const {
        const Compute elements = (Compute)packs * (Compute)(ALONG ? VECTOR : 1), all = elements_of(p, blockIdx.y);
        Compute own[ROW_WIDTH];
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            own[i] = mean[i] = (Compute)0;
            joined[i] = squares[i];
            if (CENTERED && packs != 0) {
                const Compute from_start = sum[i] / elements, rest = squares[i] - sum[i] * from_start;
                own[i] = start[i] - origin(i) + from_start;
                mean[i] = elements * own[i];
                joined[i] = rest < (Compute)0 ? (Compute)0 : rest;
            }
        }
        if constexpr (CENTERED) {
            over_row(mean, here, Sum());
            #pragma unroll
            for (int i = 0; i < ROW_WIDTH; ++i) {
                mean[i] /= all;
                const Compute apart = own[i] - mean[i];
                joined[i] += elements * apart * apart;
            }
        }
        over_row(joined, here, Sum());
    }

    // What is known of the rows beforehand, read while the block waits.
    __device__ __forceinline__ void prepare(const Params& p, const int (&at)[RANK], Row& row) const { of_row(p, at, row); }

    __device__ __forceinline__ void conclude(
        const Params& p, const Compute (&mean)[ROW_WIDTH], const Compute (&squares)[ROW_WIDTH], Row& row
    ) const {
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            row.mean[i] = origin(i) + mean[i];
            row.inverse[i] = inverse_deviation(squares[i] / (Compute)p.elements, epsilon(p));
        }
    }

    // Row i of the thread, to memory.
    __device__ __forceinline__ void store(
        const Params& p, const int (&at)[RANK], int i, Compute mean, Compute squares, const Row& row
    ) const {
        Compute whole = (Compute)0, inverse = (Compute)0;
        #pragma unroll
        for (int j = 0; j < ROW_WIDTH; ++j)
            if (i == j) whole = CENTERED ? row.mean[j] : (Compute)0, inverse = row.inverse[j];
        finish(p, at, i, whole, squares / (Compute)p.elements, inverse);
    }
};
