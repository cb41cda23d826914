// movement_zip transposes two axes of which a is short: b has adjacent items on one side, and a block of b with all of a is one
// contiguous run on the other side. OF_X: the runs are in x.
//
// Tile:    PACK items of b with all A items of a for a thread, UNROLL times.
// Memory:  vectors of PACK items on both sides; the transpose happens in registers, without shared memory.
// Threads: threads are independent; UNROLL tiles of a thread are in flight together.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   PACK: items of a vector; A: extent of axis a, small; UNROLL: tiles of a thread, 1 or more; RANK: the other axes.

#include "pdl.cuh"
#include "fast_division.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) movement_zip(const __grid_constant__ Params p) {
    pdl_wait();
    const Count first = (Count)blockIdx.x * (THREADS * UNROLL) + threadIdx.x, count = (Count)p.count;
    Vec<Item, PACK> held[UNROLL][A];
    long long to[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const Count i = first + u * THREADS;
        if (i >= count) break;
        Count rest = quotient(i, p.packs_b, p.magic_packs);
        const long long b = (long long)(i - rest * (Count)p.packs_b) * PACK;
        long long from = p.x_start + b * (OF_X ? A : 1);
        to[u] = p.y_start + b * (OF_X ? 1 : A);
        #pragma unroll
        for (int j = RANK - 1; j >= 0; --j) {
            const Count outer = quotient(rest, p.size[j], p.magic[j]);
            const long long at = (long long)(rest - outer * (Count)p.size[j]);
            from += at * p.x_stride[j];
            to[u] += at * p.y_stride[j];
            rest = outer;
        }
        #pragma unroll
        for (int k = 0; k < A; ++k) held[u][k] = load_vec<PACK>((const Item*)p.x + from + k * (OF_X ? PACK : p.x_stride_a));
    }
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (first + u * THREADS >= count) break;
        #pragma unroll
        for (int k = 0; k < A; ++k) {
            Vec<Item, PACK> pack;
            #pragma unroll
            for (int e = 0; e < PACK; ++e) {
                const int i = OF_X ? e * A + k : k * PACK + e;  // in the run
                pack.data[e] = OF_X ? held[u][i / PACK].data[i % PACK] : held[u][i % A].data[i / A];
            }
            store_vec<PACK>((Item*)p.y + to[u] + k * (OF_X ? p.y_stride_a : PACK), pack);
        }
    }
}
