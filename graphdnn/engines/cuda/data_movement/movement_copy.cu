// movement_copy copies items from strided x to strided y, in the memory order of y.
//
// Tile:    THREADS * UNROLL items for a CTA. Each of PIECES sources has its own range of CTAs; the ranges follow each other.
// Memory:  one item for an access; adjacent threads write adjacent items of y.
// Threads: UNROLL loads of a thread are in flight together; threads are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   UNROLL: items of a thread at a time, 1 or more; RANK: axes of a piece, 1 or more; PIECES: sources, 1 or more.

#include "pdl.cuh"
#include "fast_division.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) movement_copy(const __grid_constant__ Params p) {
    pdl_wait();
    int piece = 0;
    Count block = (Count)blockIdx.x;
    if constexpr (PIECES > 1)
        while (piece < PIECES - 1 && block >= (Count)p.blocks[piece]) block -= (Count)p.blocks[piece++];
    const Item* const x = source_of(p, piece) + p.x_start[piece];
    Item* const y = (Item*)p.y + p.y_start[piece];
    const int axes = piece * RANK;
    const Count count = (Count)p.count[piece], blocks = (Count)p.blocks[piece];
    for (Count first = block * (THREADS * UNROLL); first < count; first += blocks * (THREADS * UNROLL)) {
        Item held[UNROLL];
        long long to[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Count i = first + u * THREADS + threadIdx.x;
            if (i >= count) break;
            Count rest = i;
            long long from = 0;
            to[u] = 0;
            #pragma unroll
            for (int j = RANK - 1; j > 0; --j) {
                const Count outer = quotient(rest, p.size[axes + j], p.magic[axes + j]);
                const long long at = (long long)(rest - outer * (Count)p.size[axes + j]);
                from += at * p.x_stride[axes + j];
                to[u] += at * p.y_stride[axes + j];
                rest = outer;
            }
            from += (long long)rest * p.x_stride[axes];
            to[u] += (long long)rest * p.y_stride[axes];
            held[u] = x[from];
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS + threadIdx.x < count) y[to[u]] = held[u];
    }
}
