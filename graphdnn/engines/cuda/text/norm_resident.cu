// Rows that are divided among blocks which all run at the same time: what is read is kept as far as it can be. A block
// reads its part in groups of packs. The first groups stay in shared memory and the last one in registers; what is
// between them is read again, from its end, where the second level of cache may still have it.
//
// The direction says what is kept (Stored), what a thread finds of its rows (Running), and how blocks' parts join (Part).

constexpr int BLOCK_ROWS = COLUMNS * ROW_WIDTH, JOINERS = THREADS / BLOCK_ROWS;
static_assert(JOINERS > 0 && LANES >= ROW_WIDTH, "each row of a block has threads that join and store it");

struct Group {
    Stored pack[STEPS];
};

// Which packs a thread has: `first`, `first` + LANES, ... below `end`. The block has one at least.
struct Span {
    Count first, end;

    __device__ __forceinline__ Count pack(Count group, int s) const { return first + (group * STEPS + s) * LANES; }
    __device__ __forceinline__ bool has(Count group, int s) const { return pack(group, s) < end; }
    __device__ __forceinline__ Count count() const { return end > first ? (end - first + LANES - 1) / LANES : 0; }
    // Where a thread has no pack it reads the block's last one, which nobody uses: no load waits for a condition.
    __device__ __forceinline__ Count some(Count pack) const { return pack < end ? pack : end - 1; }
};

__device__ __forceinline__ void read(const Params& p, int (&at)[RANK], const Span& mine, Count group, Group& to) {
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        locate_element(p, mine.some(mine.pack(group, s)), at);
        take(p, at, to.pack[s]);
    }
}

__device__ __forceinline__ void add(const Span& mine, Count group, const Group& from, const Row& row, Running& running) {
    if (mine.has(group, STEPS - 1)) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) running.add(from.pack[s], row);
    } else {
        #pragma unroll
        for (int s = 0; s < STEPS - 1; ++s)
            if (mine.has(group, s)) running.add(from.pack[s], row);
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

// The blocks' parts become the rows' values. Every block joins those of its rows, in the same order.
__device__ __forceinline__ void join_blocks(
    const Params& p, const Place& here, Compute (&first)[ROW_WIDTH], Compute (&second)[ROW_WIDTH]
) {
    __shared__ Part joined[JOINERS][BLOCK_ROWS];
    const int row = (int)threadIdx.x % BLOCK_ROWS, joiner = (int)threadIdx.x / BLOCK_ROWS;
    const int splits = (int)gridDim.y, parts = splits < JOINERS ? splits : JOINERS;
    const long long rows = p.rows * ROW_WIDTH, place = (long long)blockIdx.x * BLOCK_ROWS + row;
    if (joiner < parts && place < rows) {
        const Compute *one = p.partial_first + place, *other = p.partial_second + place;
        Part found(p, joiner, one[joiner * rows], other[joiner * rows]);
        #pragma unroll 4
        for (int split = joiner + JOINERS; split < splits; split += JOINERS)
            found.join(Part(p, split, one[split * rows], other[split * rows]));
        joined[joiner][row] = found;
    }
    __syncthreads();
    if (joiner == 0 && place < rows) {
        Part found = joined[0][row];
        for (int i = 1; i < parts; ++i) found.join(joined[i][row]);
        joined[0][row] = found;
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        const Part& found = joined[0][here.is_live ? here.column * ROW_WIDTH + i : 0];
        first[i] = found.first;
        second[i] = found.second;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) begin_resident(const __grid_constant__ Params p) {
    let_next_start();
    for (long long i = threadIdx.x; i < p.barriers; i += THREADS) p.arrived[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_resident(const __grid_constant__ Params p) {
    extern __shared__ uint4 kept_words[];
    Stored* const kept = (Stored*)kept_words + threadIdx.x;
    const Place here = place_in(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    const Count begin = (Count)blockIdx.y * (Count)p.per_split, limit = begin + (Count)p.per_split;
    const Span mine = {begin + here.lane, limit < (Count)p.count ? limit : (Count)p.count};
    const Count last = (Count)p.groups - 1, kept_groups = (Count)p.kept_groups;

    Row row;
    Running running;
    running.begin(p, at, mine.some(mine.first), row);
    Group group;
    for (Count g = 0; g < kept_groups; ++g) {
        read(p, at, mine, g, group);
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) kept[(g * STEPS + s) * THREADS] = group.pack[s];
        add(mine, g, group, row, running);
    }
    for (Count g = kept_groups; g < last; ++g) {
        read(p, at, mine, g, group);
        add(mine, g, group, row, running);
    }
    read(p, at, mine, last, group);
    add(mine, last, group, row, running);

    Compute first[ROW_WIDTH], second[ROW_WIDTH];
    running.join(p, here, mine.count(), first, second);
    if constexpr (SPLIT) {
        if (here.is_live && here.lane == 0)
            #pragma unroll
            for (int i = 0; i < ROW_WIDTH; ++i) {
                const long long place = ((long long)blockIdx.y * p.rows + (long long)here.row) * ROW_WIDTH + i;
                p.partial_first[place] = first[i];
                p.partial_second[place] = second[i];
            }
        arrive(p.arrived + blockIdx.x);
        running.prepare(p, at, row);
        wait_for(p.arrived + blockIdx.x, gridDim.y);
        join_blocks(p, here, first, second);
    } else {
        running.prepare(p, at, row);
    }
    running.conclude(p, first, second, row);
    Compute one = first[0], other = second[0];  // of the row that this thread stores
    #pragma unroll
    for (int i = 1; i < ROW_WIDTH; ++i)
        if (i == here.lane) one = first[i], other = second[i];
    if (!here.is_live) return;

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
    if (blockIdx.y == gridDim.y - 1 && here.lane < ROW_WIDTH) running.store(p, at, here.lane, one, other, row);
}
