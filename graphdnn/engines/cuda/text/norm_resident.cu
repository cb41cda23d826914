// Rows that are divided among blocks which all run at the same time: what is read is kept as far as it can be. A thread
// reads its packs in groups, two of which take turns in its registers, so that one is on its way while the other is
// added up. The first groups stay in registers and shared memory, the last two in registers; what is between them is
// read again, from its end, where the second level of cache may still have it: of all else it is told that nobody will.
//
// The direction says what is kept (Stored), what a thread finds of its rows (Running), and how parts of rows join (Part).

constexpr int BLOCK_ROWS = COLUMNS * ROW_WIDTH, WARPS = THREADS / 32;
static_assert(sizeof(Stored) == STORED_BYTES, "shared memory holds what the launch says");
static_assert(THREADS >= BLOCK_ROWS && LANES >= ROW_WIDTH, "each row of a block has threads that join and store it");

// The packs of a thread: `first`, `first` + LANES, ... below `end`. The block has one at least.
struct Span {
    Count first, end;

    __device__ __forceinline__ Count pack(Count round) const { return first + round * LANES; }
    __device__ __forceinline__ bool has(Count round) const { return pack(round) < end; }
    __device__ __forceinline__ Count count() const { return end > first ? (end - first + LANES - 1) / LANES : 0; }
    // Where a thread has no pack it reads the block's last one, which nobody uses: no load waits for a condition.
    __device__ __forceinline__ Count some(Count round) const { return has(round) ? pack(round) : end - 1; }
};

struct Group {
    Stored pack[STEPS];

    __device__ __forceinline__ void read(const Params& p, int (&at)[RANK], const Span& mine, Count number, Policy policy) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, mine.some(number * STEPS + s), at);
            take(p, at, pack[s], policy);
        }
    }

    __device__ __forceinline__ void keep(Stored* kept, Count number) const {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) kept[(number * STEPS + s) * THREADS] = pack[s];
    }

    __device__ __forceinline__ void fetch(const Stored* kept, Count number) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) pack[s] = kept[(number * STEPS + s) * THREADS];
    }

    __device__ __forceinline__ void add_to(Running& running, const Span& mine, Count number, const Row& row) const {
        if (mine.has(number * STEPS + STEPS - 1)) {
            #pragma unroll
            for (int s = 0; s < STEPS; ++s) running.add(pack[s], row);
        } else {
            #pragma unroll
            for (int s = 0; s < STEPS - 1; ++s)
                if (mine.has(number * STEPS + s)) running.add(pack[s], row);
        }
    }

    __device__ __forceinline__ void write(
        const Params& p, int (&at)[RANK], const Span& mine, Count number, const Row& row
    ) const {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (mine.has(number * STEPS + s)) {
                locate_element(p, mine.pack(number * STEPS + s), at);
                epilogue(p, at, widened(pack[s]), row);
            }
    }
};

// Parts of a block's rows, which one thread for each row joins in their order.
struct Parts {
    Compute elements[WARPS];
    Pack<Compute, 2> values[WARPS][BLOCK_ROWS];

    __device__ __forceinline__ void set(int number, int row, Compute first, Compute second) {
        values[number][row].at[0] = first;
        values[number][row].at[1] = second;
    }
    __device__ __forceinline__ Part<1> part(int number, int row) const {
        return Part<1>{elements[number], {values[number][row].at[0]}, {values[number][row].at[1]}};
    }
    __device__ __forceinline__ Part<1> joined(int count, int row) const {
        Part<1> found = part(0, row);
        #pragma unroll 8
        for (int i = 1; i < count; ++i) found.join(part(i, row));
        return found;
    }
};

// What the threads of a warp found of each row becomes one part, in the first of its threads that have the row.
__device__ __forceinline__ void join_warp(Part<ROW_WIDTH>& mine) {
    #pragma unroll
    for (int by = ALONG ? 1 : COLUMNS; by < 32; by *= 2) {
        Part<ROW_WIDTH> other;
        other.elements = __shfl_xor_sync(0xffffffffu, mine.elements, by);
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            other.first[i] = __shfl_xor_sync(0xffffffffu, mine.first[i], by);
            other.second[i] = __shfl_xor_sync(0xffffffffu, mine.second[i], by);
        }
        mine.join(other);
    }
}

// What the threads found becomes what is known of the rows, the same in each thread of a row. Where blocks share rows
// every block joins their parts, in the same order; `between` is done while it waits for them.
template <class Between>
__device__ __forceinline__ void join_all(const Params& p, const Place& here, Part<ROW_WIDTH>& mine, Between between) {
    __shared__ Parts parts;
    const int thread = (int)threadIdx.x, warp = thread / 32;
    join_warp(mine);
    if (thread % 32 == 0) parts.elements[warp] = mine.elements;
    if (thread % 32 < (ALONG ? 1 : COLUMNS))
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i)
            parts.set(warp, here.column * ROW_WIDTH + i, mine.first[i], mine.second[i]);
    __syncthreads();
    Part<1> found;
    if (thread < BLOCK_ROWS) found = parts.joined(WARPS, thread);
    if constexpr (SPLIT) {
        constexpr int JOINERS = THREADS / BLOCK_ROWS < WARPS ? THREADS / BLOCK_ROWS : WARPS;
        const long long rows = p.rows * ROW_WIDTH, splits = gridDim.y;
        const int row = thread % BLOCK_ROWS, joiner = thread / BLOCK_ROWS;
        const long long place = (long long)blockIdx.x * BLOCK_ROWS + row;
        const int count = splits < JOINERS ? (int)splits : JOINERS;
        if (joiner == 0 && place < rows) p.partial[blockIdx.y * rows + place] = {found.first[0], found.second[0]};
        arrive(p.arrived + blockIdx.x);
        between();
        wait_for(p.arrived + blockIdx.x, gridDim.y);
        if (joiner < count && place < rows) {
            constexpr int BATCH = 5;  // loads on their way
            found = {};
            for (long long split = joiner; split < splits; split += BATCH * JOINERS) {
                Pack<Compute, 2> some[BATCH];
                #pragma unroll
                for (int i = 0; i < BATCH; ++i) {
                    const long long number = split + i * JOINERS;
                    some[i] = p.partial[(number < splits ? number : splits - 1) * rows + place];
                }
                #pragma unroll
                for (int i = 0; i < BATCH; ++i) {
                    const long long number = split + i * JOINERS;
                    if (number < splits) found.join(part_of(p, (Count)number, some[i].at[0], some[i].at[1]));
                }
            }
            if (row == 0) parts.elements[joiner] = found.elements;
            parts.set(joiner, row, found.first[0], found.second[0]);
        }
        __syncthreads();
        if (joiner == 0 && place < rows) found = parts.joined(count, row);
    } else {
        between();
    }
    if (thread < BLOCK_ROWS) parts.set(0, thread, found.first[0], found.second[0]);
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        const Pack<Compute, 2> found_row = parts.values[0][here.column * ROW_WIDTH + i];
        mine.first[i] = found_row.at[0];
        mine.second[i] = found_row.at[1];
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
    // Groups in this order: EARLY in registers, some in shared memory, some that are read again, two in registers.
    const Count groups = (Count)p.groups, kept_end = EARLY + (Count)p.kept_groups;

    Row row;
    Running running;
    Group early[EARLY > 0 ? EARLY : 1], one, other;
    const Policy once = read_once(), again = read_again();
    const auto read = [&](Group& group, Count number) {
        group.read(p, at, mine, number, number >= kept_end && number + 2 < groups ? again : once);
    };
    const auto find = [&](const Group& group, Count number) {
        if (number < kept_end) group.keep(kept, number - EARLY);
        group.add_to(running, mine, number, row);
    };
    #pragma unroll
    for (int i = 0; i < EARLY; ++i) read(early[i], i);
    read(one, EARLY);
    running.prepare(p, at, row);
    read(other, EARLY + 1);
    running.begin(EARLY > 0 ? early[0].pack[0] : one.pack[0]);
    #pragma unroll
    for (int i = 0; i < EARLY; ++i) early[i].add_to(running, mine, i, row);
    for (Count g = EARLY;; g += 2) {
        find(one, g);
        const bool goes_on = g + 2 < groups;
        if (goes_on) read(one, g + 2);
        find(other, g + 1);
        if (!goes_on) break;
        read(other, g + 3);
    }

    Part<ROW_WIDTH> part = running.part(p, mine.count());
    join_all(p, here, part, [&] { running.prepare_end(p, at, row); });
    running.conclude(p, part, row);
    Compute first = part.first[0], second = part.second[0];  // of the row that this thread stores
    #pragma unroll
    for (int i = 1; i < ROW_WIDTH; ++i)
        if (i == here.lane) first = part.first[i], second = part.second[i];
    if (!here.is_live) return;

    const auto back = [&](Group& group, Count number) {
        if (number < kept_end) group.fetch(kept, number - EARLY);
        else group.read(p, at, mine, number, once);
    };
    for (Count g = groups - 2;; g -= 2) {
        other.write(p, at, mine, g + 1, row);
        if (g != EARLY) back(other, g - 1);
        one.write(p, at, mine, g, row);
        if (g == EARLY) break;
        back(one, g - 2);
    }
    #pragma unroll
    for (int i = 0; i < EARLY; ++i) early[i].write(p, at, mine, i, row);
    if (blockIdx.y == gridDim.y - 1 && here.lane < ROW_WIDTH) running.store(p, at, here.lane, first, second, row);
}
