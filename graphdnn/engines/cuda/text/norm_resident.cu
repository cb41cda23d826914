// Rows that are divided among blocks which all run at the same time: x is read once, as far as it can be kept. A block
// reads its part in groups of packs. The first KEPT groups stay in shared memory and the last one in registers; what
// is between them is read again, from its end, where the second level of cache may still have it.
//
// Moments of a thread count from an element of its own, which bounds what cancels by the number of its elements, and
// join by deviations of their means from the common one. Means count from the first element of the row, so that one far
// from zero costs no digits.

constexpr int BLOCK_ROWS = COLUMNS * ROW_WIDTH, JOINERS = THREADS / BLOCK_ROWS;
static_assert(JOINERS > 0, "each row of a block has a thread that joins its parts");

struct Group {
    Stored pack[STEPS];
};

// Which packs a thread has: `first`, `first` + LANES, ... below `end`.
struct Span {
    Count first, end;
    __device__ __forceinline__ Count pack(Count group, int s) const { return first + (group * STEPS + s) * LANES; }
    __device__ __forceinline__ bool has(Count group, int s) const { return pack(group, s) < end; }
    __device__ __forceinline__ Count count() const { return end > first ? (end - first + LANES - 1) / LANES : 0; }
};

// Where a thread has no pack it reads the last one of the block, which nobody uses: no load waits for a condition.
__device__ __forceinline__ void read(const Params& p, int (&at)[RANK], const Span& mine, Count group, Group& to) {
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const Count pack = mine.pack(group, s);
        locate_element(p, pack < mine.end ? pack : mine.end - 1, at);
        take(p, at, to.pack[s]);
    }
}

__device__ __forceinline__ void write(
    const Params& p, int (&at)[RANK], const Span& mine, Count group, const Group& from, const Row& row
) {
    #pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (mine.has(group, s)) {
            locate_element(p, mine.pack(group, s), at);
            epilogue(p, at, widened(from.pack[s]), row);
        }
}

struct Moments {
    Compute start[ROW_WIDTH], sum[ROW_WIDTH], squares[ROW_WIDTH];

    __device__ __forceinline__ void begin(const Stored& pack) {
        const Elements first = widened(pack);
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) start[i] = finite(first.x[i]);
    }
    __device__ __forceinline__ void add(const Stored& pack) {
        const Elements more = widened(pack);
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            const int i = row_of(e);
            const Compute deviation = CENTERED ? more.x[e] - start[i] : more.x[e];
            if (CENTERED) sum[i] += deviation;
            multiply_add(squares[i], deviation, deviation);
        }
    }
    __device__ __forceinline__ void add(const Group& group, const Span& mine, Count number) {
        if (mine.has(number, STEPS - 1)) {
            #pragma unroll
            for (int s = 0; s < STEPS; ++s) add(group.pack[s]);
        } else {
            #pragma unroll
            for (int s = 0; s < STEPS - 1; ++s)
                if (mine.has(number, s)) add(group.pack[s]);
        }
    }
};

// Moments of a part of a row.
struct Part {
    Compute elements, mean, squares;
    __device__ __forceinline__ void join(const Part& other) {
        const Compute both = elements + other.elements;
        if (other.elements == (Compute)0) return;
        const Compute share = other.elements / both, apart = other.mean - mean;
        mean += apart * share;
        squares += other.squares + apart * apart * (share * elements);
        elements = both;
    }
};

__device__ __forceinline__ Compute elements_of(const Params& p, Count split) {
    const Count begin = split * (Count)p.per_split, rest = (Count)p.count - begin;
    return (Compute)(rest < (Count)p.per_split ? rest : (Count)p.per_split) * (Compute)(ALONG ? VECTOR : 1);
}

// The threads' moments become the block's, the same in each thread of a row.
__device__ __forceinline__ void join_threads(
    const Params& p, const Place& here, const Span& mine, const Compute (&origin)[ROW_WIDTH], const Moments& moments,
    Compute (&mean)[ROW_WIDTH], Compute (&squares)[ROW_WIDTH]
) {
    const Compute elements = (Compute)mine.count() * (Compute)(ALONG ? VECTOR : 1);
    const Compute all = elements_of(p, blockIdx.y);
    Compute own[ROW_WIDTH];
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        own[i] = mean[i] = (Compute)0;
        squares[i] = moments.squares[i];
        if (CENTERED && elements != (Compute)0) {
            const Compute from_start = moments.sum[i] / elements;
            own[i] = moments.start[i] - origin[i] + from_start;
            mean[i] = elements * own[i];
            const Compute rest = squares[i] - moments.sum[i] * from_start;
            squares[i] = rest < (Compute)0 ? (Compute)0 : rest;
        }
    }
    if constexpr (CENTERED) {
        over_row(mean, here, Sum());
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            mean[i] /= all;
            const Compute apart = own[i] - mean[i];
            squares[i] += elements * apart * apart;
        }
    }
    over_row(squares, here, Sum());
}

// The blocks' moments become the rows'. Every block joins those of its rows, in the same order.
__device__ __forceinline__ void join_blocks(
    const Params& p, const Place& here, Compute (&mean)[ROW_WIDTH], Compute (&squares)[ROW_WIDTH]
) {
    __shared__ Part part[JOINERS][BLOCK_ROWS];
    const int row = (int)threadIdx.x % BLOCK_ROWS, joiner = (int)threadIdx.x / BLOCK_ROWS;
    const long long rows = p.rows * ROW_WIDTH, place = (long long)blockIdx.x * BLOCK_ROWS + row;
    if (joiner < JOINERS && place < rows) {
        Part found = {};
        #pragma unroll 4
        for (int split = joiner; split < (int)gridDim.y; split += JOINERS) {
            const long long from = split * rows + place;
            found.join(Part{elements_of(p, split), CENTERED ? p.partial_mean[from] : (Compute)0, p.partial_squares[from]});
        }
        part[joiner][row] = found;
    }
    __syncthreads();
    if (joiner == 0 && place < rows) {
        Part found = part[0][row];
        #pragma unroll
        for (int i = 1; i < JOINERS; ++i) found.join(part[i][row]);
        part[0][row] = found;
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        const Part& found = part[0][here.is_live ? here.column * ROW_WIDTH + i : 0];
        mean[i] = found.mean;
        squares[i] = found.squares;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) begin_resident(const __grid_constant__ Params p) {
    for (long long i = threadIdx.x; i < p.barriers; i += THREADS) p.arrived[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_resident(const __grid_constant__ Params p) {
    extern __shared__ uint4 shared_words[];
    Stored* const kept = (Stored*)shared_words + threadIdx.x;
    const Place here = place_in(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    const Count begin = (Count)blockIdx.y * (Count)p.per_split, limit = begin + (Count)p.per_split;
    const Span mine = {begin + here.lane, limit < (Count)p.count ? limit : (Count)p.count};
    const Count last = (Count)p.groups - 1, kept_groups = (Count)p.kept_groups;

    Stored first;
    locate_element(p, 0, at);
    take(p, at, first);
    Moments moments = {};
    Group group;
    if (CENTERED && mine.has(0, 0)) {
        locate_element(p, mine.pack(0, 0), at);
        take(p, at, group.pack[0]);
        moments.begin(group.pack[0]);
    }
    for (Count g = 0; g < kept_groups; ++g) {
        read(p, at, mine, g, group);
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) kept[(g * STEPS + s) * THREADS] = group.pack[s];
        moments.add(group, mine, g);
    }
    for (Count g = kept_groups; g < last; ++g) {
        read(p, at, mine, g, group);
        moments.add(group, mine, g);
    }
    read(p, at, mine, last, group);
    moments.add(group, mine, last);

    Compute origin[ROW_WIDTH], mean[ROW_WIDTH], squares[ROW_WIDTH];
    const Elements at_first = widened(first);
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) origin[i] = CENTERED ? finite(at_first.x[i]) : (Compute)0;
    join_threads(p, here, mine, origin, moments, mean, squares);
    Row row;
    if constexpr (SPLIT) {
        if (here.is_live && here.lane == 0)
            #pragma unroll
            for (int i = 0; i < ROW_WIDTH; ++i) {
                const long long place = ((long long)blockIdx.y * p.rows + (long long)here.row) * ROW_WIDTH + i;
                if constexpr (CENTERED) p.partial_mean[place] = mean[i];
                p.partial_squares[place] = squares[i];
            }
        arrive(p.arrived + blockIdx.x);
        of_row(p, at, row);
        wait_for(p.arrived + blockIdx.x, gridDim.y);
        join_blocks(p, here, mean, squares);
    } else {
        of_row(p, at, row);
    }
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        squares[i] /= (Compute)p.elements;  // the variance
        row.mean[i] = origin[i] + mean[i];
        row.inverse[i] = inverse_deviation(squares[i], epsilon(p));
    }

    if (here.is_live) {
        write(p, at, mine, last, group, row);
        for (Count g = last; g-- > kept_groups;) {
            read(p, at, mine, g, group);
            write(p, at, mine, g, group, row);
        }
        for (Count g = kept_groups; g-- > 0;) {
            #pragma unroll
            for (int s = 0; s < STEPS; ++s) group.pack[s] = kept[(g * STEPS + s) * THREADS];
            write(p, at, mine, g, group, row);
        }
    }
    if (here.is_live && blockIdx.y == gridDim.y - 1 && here.lane < ROW_WIDTH) {
        Compute values[3] = {};  // of the row that this thread finishes
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i)
            if (i == here.lane) values[0] = row.mean[i], values[1] = squares[i], values[2] = row.inverse[i];
        finish(p, at, here.lane, CENTERED ? values[0] : (Compute)0, values[1], values[2]);
    }
}
