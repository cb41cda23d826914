// Combines the partial results of persistent CTAs for each row, in a fixed order.

#include "norm_persistent_direction.cuh"
#include "grid_barrier.cuh"
#include "norm_span.cuh"

constexpr int BLOCK_ROWS = COLUMNS * ROWS_PER_THREAD, WARPS = THREADS / 32;
constexpr int COMBINERS = THREADS / BLOCK_ROWS < WARPS ? THREADS / BLOCK_ROWS : WARPS;  // threads that combine a row's CTAs
constexpr int BATCH = sizeof(Compute) == 8 ? 2 : 5;  // partial results that a thread combines at once, half of its loads
static_assert(COMBINERS >= 1 && WARPS >= 2 && THREADS_PER_ROW >= ROWS_PER_THREAD, "each row has threads that combine and store it");

// The partial results of a CTA's rows, and the factors that every thread receives at the end.
struct Parts {
    Compute elements[WARPS];
    Vec<Compute, 2> values[WARPS][BLOCK_ROWS];

    __device__ __forceinline__ void set(int number, int row, Compute first, Compute second) {
        values[number][row].data[0] = first;
        values[number][row].data[1] = second;
    }
    __device__ __forceinline__ Part<1> combined(int count, int row) const {
        Part<1> total = {};
        #pragma unroll
        for (int first = 0; first < WARPS; first += BATCH) {
            Part<1> batch[BATCH + 1];
            batch[BATCH] = total;
            #pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                batch[i] = {};
                if (first + i < WARPS && first + i < count)
                    batch[i] = {elements[first + i], {values[first + i][row].data[0]}, {values[first + i][row].data[1]}};
            }
            total = combine_parts(batch);
        }
        return total;
    }
};

// Combines the partial results of a warp's threads for each row. The first thread of the row has the result.
__device__ __forceinline__ void combine_warp(Part<ROWS_PER_THREAD>& part) {
    #pragma unroll
    for (int distance = ALONG ? 1 : COLUMNS; distance < 32; distance *= 2) {
        Part<ROWS_PER_THREAD> other;
        other.elements = __shfl_xor_sync(0xffffffffu, part.elements, distance);
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            other.first[i] = __shfl_xor_sync(0xffffffffu, part.first[i], distance);
            other.second[i] = __shfl_xor_sync(0xffffffffu, part.second[i], distance);
        }
        part.combine(other);
    }
}

// Combines the partial results of all threads, and gives each thread of a row the same factors. If several CTAs share a row,
// every CTA combines their partial results in the same order. The results are stored.
__device__ __forceinline__ void combine_all(
    const Params& p,
    Count tile,
    const ThreadSlot& slot,
    const Span& span,
    Part<ROWS_PER_THREAD>& part,
    const Running& running,
    const int (&at)[RANK],
    Row& row
) {
    __shared__ Parts parts;
    const int thread = (int)threadIdx.x, warp = thread / 32, first_row = slot.column * ROWS_PER_THREAD;
    combine_warp(part);
    if constexpr (ROUNDS) __syncthreads();  // all threads have read the results of the previous tile
    if (thread % 32 == 0) parts.elements[warp] = part.elements;
    if (thread % 32 < (ALONG ? 1 : COLUMNS))
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) parts.set(warp, first_row + i, part.first[i], part.second[i]);
    __syncthreads();
    Part<1> row_part = {};
    if (thread < BLOCK_ROWS) row_part = parts.combined(WARPS, thread);
    if constexpr (SPLIT) {
        const long long rows = p.rows * ROWS_PER_THREAD;
        const int splits = (int)gridDim.y;
        const int block_row = thread % BLOCK_ROWS, combiner = thread / BLOCK_ROWS;
        const long long row_index = (long long)tile * BLOCK_ROWS + block_row;
        if (combiner == 0 && row_index < rows)
            p.partial[blockIdx.y * rows + row_index] = {row_part.first[0], row_part.second[0]};
        arrive(p.arrived + tile);
        if constexpr (ROUNDS) prefetch_next(p, tile, span);
        running.load_factors(p, at, row);
        wait_for(p.arrived + tile, gridDim.y);
        if (combiner < COMBINERS && row_index < rows) {
            row_part = {};
            for (int split = combiner; split < splits; split += 2 * BATCH * COMBINERS) {
                Vec<Compute, 2> values[2 * BATCH];
                #pragma unroll
                for (int i = 0; i < 2 * BATCH; ++i) {
                    const int number = split + i * COMBINERS;
                    values[i] = p.partial[(number < splits ? number : splits - 1) * rows + row_index];
                }
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Part<1> batch[BATCH + 1];
                    batch[BATCH] = row_part;
                    #pragma unroll
                    for (int i = 0; i < BATCH; ++i) {
                        const int number = split + (half * BATCH + i) * COMBINERS;
                        const Vec<Compute, 2> loaded = values[half * BATCH + i];
                        batch[i] = {};
                        if (number < splits) batch[i] = part_of(p, number, loaded.data[0], loaded.data[1]);
                    }
                    row_part = combine_parts(batch);
                }
            }
            if (block_row == 0) parts.elements[combiner] = row_part.elements;
            parts.set(combiner, block_row, row_part.first[0], row_part.second[0]);
        }
        __syncthreads();
        if (thread < BLOCK_ROWS) row_part = parts.combined(COMBINERS, thread);
    } else {
        running.load_factors(p, at, row);
    }
    if (thread < BLOCK_ROWS) {
        const Vec<Compute, 2> factors = factors_of(p, row_part), stored = results_of(p, row_part);
        parts.set(0, thread, factors.data[0], factors.data[1]);
        parts.set(1, thread, stored.data[0], stored.data[1]);
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) running.set_factors(parts.values[0][first_row + i], i, row);
    if (blockIdx.y == gridDim.y - 1 && slot.is_live && slot.row_thread < ROWS_PER_THREAD)
        running.store(p, at, slot.row_thread, parts.values[1][first_row + slot.row_thread], row);
}
