// pointwise computes a graph of pointwise operations over one index space.
//
// Tile:    WIDTH adjacent elements of the last axis for a thread. PAIRS: two such vectors at a time, for more
//          loads in flight.
// Memory:  vector accesses along the last axis. WRAPS: a vector counts elements of the whole space and may cross the end of
//          the last axis. REVERSED: the grid starts at the end, which L2 may still hold after a kernel that read the same elements.
// Threads: threads are independent; the grid strides over all vectors.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   RANK: axes of the index space, 1 or more; WIDTH: elements of a vector, 1 or more.
//   PAIRS, WRAPS, REVERSED: flags, see above.

#include "pdl.cuh"

__device__ __forceinline__ void place(const Params& p, Count i, int (&at)[RANK]) {
    if constexpr (WRAPS) i *= WIDTH;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count size = (Count)(j == RANK - 1 && !WRAPS ? p.size[j] / WIDTH : p.size[j]);
        const Count outer = i / size;
        at[j] = (int)(i - outer * size);
        i = outer;
    }
    at[0] = (int)i;
    if constexpr (!WRAPS) at[RANK - 1] *= WIDTH;
}

// From the end, where a kernel before read the same elements: what it read last may still be in the cache.
__device__ __forceinline__ Count turn(Count i, Count count) { return REVERSED ? count - 1 - i : i; }

extern "C" __global__ void __launch_bounds__(THREADS, 2) pointwise(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const Count count = (Count)p.count, step = (Count)gridDim.x * THREADS;
    Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    int at[RANK];
    ColumnOperands kept;  // of operands along the last axis, where a thread's packs are whole rows apart; else nothing
    place(p, turn(i, count), at);
    load_column_operands(p, at, kept);
    if constexpr (PAIRS) {
        for (; i + step < count; i += 2 * step) {
            int next[RANK];
            const Count one = turn(i, count), other = turn(i + step, count);
            place(p, one, at);
            place(p, other, next);
            chain(p, at, (long long)one * WIDTH, kept);
            chain(p, next, (long long)other * WIDTH, kept);
        }
    }
    for (; i < count; i += step) {
        const Count one = turn(i, count);
        place(p, one, at);
        chain(p, at, (long long)one * WIDTH, kept);
    }
}
