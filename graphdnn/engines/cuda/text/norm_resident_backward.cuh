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

// Sums of parts of rows, N at once: of the gradient, and of its product with the normalized x.
template <int N> struct Part {
    Compute elements, first[N], second[N];

    __device__ __forceinline__ void join(const Part& other) {
        #pragma unroll
        for (int i = 0; i < N; ++i) first[i] += other.first[i], second[i] += other.second[i];
    }
};

__device__ __forceinline__ Part<1> part_of(const Params&, Count, Compute sum, Compute dot) {
    return {(Compute)0, {sum}, {dot}};
}

struct Running {
    Compute sum[ROW_WIDTH], dot[ROW_WIDTH];

    __device__ __forceinline__ void prepare(const Params& p, const int (&at)[RANK], Row& row) const { of_row(p, at, row); }

    __device__ __forceinline__ void begin(const Stored&) {
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

    __device__ __forceinline__ Part<ROW_WIDTH> part(const Params&, Count) const {
        Part<ROW_WIDTH> found;
        found.elements = (Compute)0;
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) found.first[i] = sum[i], found.second[i] = dot[i];
        return found;
    }

    __device__ __forceinline__ void prepare_end(const Params&, const int (&)[RANK], Row&) const {}

    __device__ __forceinline__ void conclude(const Params& p, const Part<ROW_WIDTH>& part, Row& row) const {
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) row.sum[i] = part.first[i], row.dot[i] = part.second[i];
        average(p, row);
    }

    // Row i of the thread, to memory.
    __device__ __forceinline__ void store(
        const Params& p, const int (&at)[RANK], int i, Compute first, Compute second, const Row&
    ) const {
        finish(p, at, i, first, second);
    }
};
