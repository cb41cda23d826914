// norm_persistent normalizes long rows that are divided among CTAs which all run at the same time (cooperative launch).
//
// Tile:     COLUMNS rows for gridDim.y CTAs. With ROUNDS, the grid processes one tile of rows after another.
// Pipeline: a thread reads batches of STEPS vectors into two register buffers: one batch is loaded while the other is summed.
// Memory:   the first EARLY vectors of a thread stay in registers, the next ones in shared memory, the last two batches in
//           registers. Other vectors are read again, from the end, where L2 may still hold them. Loads of all other vectors
//           carry an evict-first policy.
// Threads:  THREADS_PER_ROW threads of each CTA share a row. CTAs exchange partial results through the workspace and a grid
//           barrier.
//
// init_persistent clears the counters of the grid barriers. The direction (forward or backward) defines Stored (the cached
// elements of a vector), Running (the sums of a thread) and Part (partial sums, and how they combine).
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization.
//   SCALED: 1 if each row has one scale, forward only. SPLIT: 1 if several CTAs share a row.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   ROUNDS: 1 if there are more tiles than run at once; EARLY: vectors that stay in registers, 0 or more.
//   STORED_BYTES: size of Stored, by which the host computes the shared memory. OF_LINE: vectors of a prefetched line.

#include "pdl.cuh"
#include "norm_span.cuh"
#include "norm_combine.cuh"

static_assert(sizeof(Stored) == STORED_BYTES, "the host counts as the compiler does");

struct Group {
    Stored vec[STEPS];

    __device__ __forceinline__ void read_one(
        const Params& p, int (&at)[RANK], const Span& span, Count round, int s, L2Policy policy
    ) {
        locate_element(p, span.clamped(round + s), at);
        load_elements(p, at, vec[s], policy);
    }

    __device__ __forceinline__ void read(const Params& p, int (&at)[RANK], const Span& span, Count round, L2Policy policy) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) read_one(p, at, span, round, s, policy);
    }

    // Keeps the vectors that fit into the cache.
    __device__ __forceinline__ void keep(const Kept& kept, Count round, Count end) const {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (round + s < end) kept.put(round - EARLY + s, vec[s]);
    }

    __device__ __forceinline__ void read_back(
        const Params& p, int (&at)[RANK], const Span& span, const Kept& kept, Count round, Count end, L2Policy policy
    ) {
        if (round >= end) {
            read(p, at, span, round, policy);
        } else {
            #pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (round + s < end) vec[s] = kept.get(round - EARLY + s);
                else read_one(p, at, span, round, s, policy);
        }
    }

    __device__ __forceinline__ void add_to(Running& running, const Span& span, Count round, const Row& row) const {
        if (span.has(round + STEPS - 1)) {
            #pragma unroll
            for (int s = 0; s < STEPS; ++s) running.add(vec[s], row);
        } else {
            #pragma unroll
            for (int s = 0; s < STEPS - 1; ++s)
                if (span.has(round + s)) running.add(vec[s], row);
        }
    }

    __device__ __forceinline__ void write(
        const Params& p, int (&at)[RANK], const Span& span, Count round, const Row& row
    ) const {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (span.has(round + s)) {
                locate_element(p, span.vec(round + s), at);
                epilogue(p, at, widened(vec[s]), row);
            }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) init_persistent(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    for (long long i = threadIdx.x; i < p.tiles; i += THREADS) p.arrived[i] = 0;
}

// Normalizes one tile of rows.
__device__ __forceinline__ void normalize_tile(const Params& p, Count tile, const Kept& kept, L2Policy once, L2Policy again) {
    const ThreadSlot slot = thread_slot(p, tile);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, slot.row, at);
    int split = (int)blockIdx.y, splits = (int)gridDim.y;
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(split), "+r"(splits));  // recomputed for each tile, so that no register holds it across tiles
#endif
    const Span span = span_of(p, (Count)split, (Count)splits, slot.row_thread);
    const Count kept_end = EARLY + (Count)p.kept, end = EARLY + (Count)p.groups * STEPS;

    Row row;
    Running running;
    Stored early[EARLY > 0 ? EARLY : 1];
    Group one, other;
    const auto read = [&](Group& group, Count round) {
        group.read(p, at, span, round, round + STEPS > kept_end && round + 2 * STEPS < end ? again : once);
    };
    const auto accumulate_group = [&](const Group& group, Count round) {
        if (round < kept_end) group.keep(kept, round, kept_end);
        group.add_to(running, span, round, row);
    };
    #pragma unroll
    for (int i = 0; i < EARLY; ++i) {
        locate_element(p, span.clamped(i), at);
        load_elements(p, at, early[i], once);
    }
    read(one, EARLY);
    running.prepare(p, at, row);
    read(other, EARLY + STEPS);
    running.begin(EARLY > 0 ? early[0] : one.vec[0]);
    #pragma unroll
    for (int i = 0; i < EARLY; ++i)
        if (span.has(i)) running.add(early[i], row);
    for (Count round = EARLY;; round += 2 * STEPS) {
        accumulate_group(one, round);
        const bool has_next = round + 2 * STEPS < end;
        if (has_next) read(one, round + 2 * STEPS);
        accumulate_group(other, round + STEPS);
        if (!has_next) break;
        read(other, round + 3 * STEPS);
    }

    Part<ROWS_PER_THREAD> part = running.part(p, span.count());
    combine_all(p, tile, slot, span, part, running, at, row);
    if (!ROUNDS || tile + gridDim.x >= (Count)p.tiles) pdl_trigger();
    if (!slot.is_live) return;

    for (Count round = end - 2 * STEPS;; round -= 2 * STEPS) {
        other.write(p, at, span, round + STEPS, row);
        const bool has_next = round != EARLY;
        if (has_next) other.read_back(p, at, span, kept, round - STEPS, kept_end, once);
        one.write(p, at, span, round, row);
        if (!has_next) break;
        one.read_back(p, at, span, kept, round - 2 * STEPS, kept_end, once);
    }
    #pragma unroll
    for (int i = 0; i < EARLY; ++i)
        if (span.has(i)) {
            locate_element(p, span.vec(i), at);
            epilogue(p, at, widened(early[i]), row);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_persistent(const __grid_constant__ Params p) {
    extern __shared__ uint4 cache_words[];
    pdl_wait();
    const Kept kept((unsigned char*)cache_words, (int)p.kept);
    const L2Policy once = evict_first_policy(), again = evict_normal_policy();
    Count tile = blockIdx.x;
    do normalize_tile(p, tile, kept, once, again);
    while (ROUNDS && (tile += gridDim.x) < (Count)p.tiles);
}
