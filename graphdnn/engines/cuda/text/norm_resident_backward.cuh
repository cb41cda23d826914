// What blocks that stay find of x and the gradient. They keep both in the types that the graph gives them: widening
// changes nothing.

__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
        elements.x[e] = widen<Compute>(pack.x.at[e]);
        elements.g[e] = widen<Compute>(pack.g.at[e]);
    }
    return elements;
}

// Sums of a part of a row: of the gradient, and of its product with the normalized x.
struct Part {
    Compute first, second;

    Part() = default;
    __device__ __forceinline__ Part(const Params&, Count, Compute sum, Compute dot) : first(sum), second(dot) {}
    __device__ __forceinline__ void join(const Part& other) {
        first += other.first;
        second += other.second;
    }
};

struct Running {
    Compute sum[ROW_WIDTH], dot[ROW_WIDTH];

    __device__ __forceinline__ void begin(const Params& p, const int (&at)[RANK], Count, Row& row) {
        of_row(p, at, row);
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) sum[i] = dot[i] = (Compute)0;
    }

    __device__ __forceinline__ void add(const Stored& pack, const Row& row) {
        const Elements more = widened(pack);
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            sum[row_of(e)] += more.g[e];
            multiply_add(dot[row_of(e)], more.g[e], normalized(more, row, e));
        }
    }

    __device__ __forceinline__ void join(
        const Params&, const Place& here, Count, Compute (&first)[ROW_WIDTH], Compute (&second)[ROW_WIDTH]
    ) const {
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) first[i] = sum[i], second[i] = dot[i];
        over_row(first, here, Sum());
        over_row(second, here, Sum());
    }

    __device__ __forceinline__ void prepare(const Params&, const int (&)[RANK], Row&) const {}

    __device__ __forceinline__ void conclude(
        const Params& p, const Compute (&first)[ROW_WIDTH], const Compute (&second)[ROW_WIDTH], Row& row
    ) const {
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) row.sum[i] = first[i], row.dot[i] = second[i];
        average(p, row);
    }

    // Row i of the thread, to memory.
    __device__ __forceinline__ void store(
        const Params& p, const int (&at)[RANK], int i, Compute first, Compute second, const Row&
    ) const {
        finish(p, at, i, first, second);
    }
};
