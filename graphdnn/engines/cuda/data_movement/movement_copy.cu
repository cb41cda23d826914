// movement_copy copies items from strided x to strided y, in the memory order of y.
//
// Tile:    THREADS * UNROLL items for a CTA. Each of SOURCES sources has its own range of CTAs; the ranges follow each other.
// Memory:  one item for an access; adjacent threads write adjacent items of y.
// Threads: UNROLL loads of a thread are in flight together; threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   UNROLL: items of a thread at a time, 1 or more; RANK: axes of a source, 1 or more; SOURCES: sources, 1 or more.

#include "pdl.cuh"
#include "fast_division.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) movement_copy(const __grid_constant__ Params p) {
    pdl_wait();
    int source = 0;
    Count cta = (Count)blockIdx.x;
    if constexpr (SOURCES > 1)
        while (source < SOURCES - 1 && cta >= (Count)p.ctas[source]) cta -= (Count)p.ctas[source++];
    const Item* const x = source_of(p, source) + p.x_start[source];
    Item* const y = (Item*)p.y + p.y_start[source];
    const int axes = source * RANK;
    const Count count = (Count)p.count[source], ctas = (Count)p.ctas[source];
    for (Count first = cta * (THREADS * UNROLL); first < count; first += ctas * (THREADS * UNROLL)) {
        Item fragment[UNROLL];
        long long to[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Count i = first + u * THREADS + threadIdx.x;
            if (i >= count) break;
            Count rem = i;
            long long from = 0;
            to[u] = 0;
            #pragma unroll
            for (int j = RANK - 1; j > 0; --j) {
                const Count outer = quotient(rem, p.size[axes + j], p.magic[axes + j]);
                const long long at = (long long)(rem - outer * (Count)p.size[axes + j]);
                from += at * p.x_stride[axes + j];
                to[u] += at * p.y_stride[axes + j];
                rem = outer;
            }
            from += (long long)rem * p.x_stride[axes];
            to[u] += (long long)rem * p.y_stride[axes];
            fragment[u] = x[from];
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS + threadIdx.x < count) y[to[u]] = fragment[u];
    }
}
