// Combines the partial results of persistent CTAs for each row, in a fixed order.

constexpr int BLOCK_ROWS = COLUMNS * ROW_WIDTH, WARPS = THREADS / 32;
constexpr int JOINERS = THREADS / BLOCK_ROWS < WARPS ? THREADS / BLOCK_ROWS : WARPS;  // threads that combine a row's CTAs
constexpr int BATCH = sizeof(Compute) == 8 ? 2 : 5;  // partial results that a thread combines at once, half of its loads
static_assert(JOINERS >= 1 && WARPS >= 2 && LANES >= ROW_WIDTH, "each row has threads that join and store it");

// The partial results of a CTA's rows, and the factors that every thread receives at the end.
struct Parts {
    Compute elements[WARPS];
    Vec<Compute, 2> values[WARPS][BLOCK_ROWS];

    __device__ __forceinline__ void set(int number, int row, Compute first, Compute second) {
        values[number][row].data[0] = first;
        values[number][row].data[1] = second;
    }
    __device__ __forceinline__ Part<1> joined(int count, int row) const {
        Part<1> all = {};
        #pragma unroll
        for (int first = 0; first < WARPS; first += BATCH) {
            Part<1> part[BATCH + 1];
            part[BATCH] = all;
            #pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                part[i] = {};
                if (first + i < WARPS && first + i < count)
                    part[i] = {elements[first + i], {values[first + i][row].data[0]}, {values[first + i][row].data[1]}};
            }
            all = together(part);
        }
        return all;
    }
};

// Combines the partial results of a warp's threads for each row. The first thread of the row has the result.
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

// Combines the partial results of all threads, and gives each thread of a row the same factors. If several CTAs share a row,
// every CTA combines their partial results in the same order. The results are stored.
__device__ __forceinline__ void join_all(
    const Params& p,
    Count tile,
    const Place& here,
    const Span& span,
    Part<ROW_WIDTH>& mine,
    const Running& running,
    const int (&at)[RANK],
    Row& row
) {
    __shared__ Parts parts;
    const int thread = (int)threadIdx.x, warp = thread / 32, mine_at = here.column * ROW_WIDTH;
    join_warp(mine);
    if constexpr (ROUNDS) __syncthreads();  // all threads have read the results of the previous tile
    if (thread % 32 == 0) parts.elements[warp] = mine.elements;
    if (thread % 32 < (ALONG ? 1 : COLUMNS))
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) parts.set(warp, mine_at + i, mine.first[i], mine.second[i]);
    __syncthreads();
    Part<1> found = {};
    if (thread < BLOCK_ROWS) found = parts.joined(WARPS, thread);
    if constexpr (SPLIT) {
        const long long rows = p.rows * ROW_WIDTH;
        const int splits = (int)gridDim.y;
        const int block_row = thread % BLOCK_ROWS, joiner = thread / BLOCK_ROWS;
        const long long place = (long long)tile * BLOCK_ROWS + block_row;
        if (joiner == 0 && place < rows) p.partial[blockIdx.y * rows + place] = {found.first[0], found.second[0]};
        arrive(p.arrived + tile);
        if constexpr (ROUNDS) fetch_next(p, tile, span);
        running.prepare_end(p, at, row);
        wait_for(p.arrived + tile, gridDim.y);
        if (joiner < JOINERS && place < rows) {
            found = {};
            for (int split = joiner; split < splits; split += 2 * BATCH * JOINERS) {
                Vec<Compute, 2> values[2 * BATCH];
                #pragma unroll
                for (int i = 0; i < 2 * BATCH; ++i) {
                    const int number = split + i * JOINERS;
                    values[i] = p.partial[(number < splits ? number : splits - 1) * rows + place];
                }
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Part<1> part[BATCH + 1];
                    part[BATCH] = found;
                    #pragma unroll
                    for (int i = 0; i < BATCH; ++i) {
                        const int number = split + (half * BATCH + i) * JOINERS;
                        const Vec<Compute, 2> some = values[half * BATCH + i];
                        part[i] = {};
                        if (number < splits) part[i] = part_of(p, number, some.data[0], some.data[1]);
                    }
                    found = together(part);
                }
            }
            if (block_row == 0) parts.elements[joiner] = found.elements;
            parts.set(joiner, block_row, found.first[0], found.second[0]);
        }
        __syncthreads();
        if (thread < BLOCK_ROWS) found = parts.joined(JOINERS, thread);
    } else {
        running.prepare_end(p, at, row);
    }
    if (thread < BLOCK_ROWS) {
        const Vec<Compute, 2> needed = needed_of(p, found), stored = stored_of(p, found);
        parts.set(0, thread, needed.data[0], needed.data[1]);
        parts.set(1, thread, stored.data[0], stored.data[1]);
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) running.conclude(parts.values[0][mine_at + i], i, row);
    if (blockIdx.y == gridDim.y - 1 && here.is_live && here.lane < ROW_WIDTH)
        running.store(p, at, here.lane, parts.values[1][mine_at + here.lane], row);
}
