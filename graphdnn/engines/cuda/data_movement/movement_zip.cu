// movement_zip transposes axes a and b, where a is short. On one side b is contiguous. On the other side a is contiguous and b
// follows it without gaps, so a block of b with all of a is one contiguous run. RUNS_IN_X: the runs are in x.
//
// Tile:    VEC_WIDTH items of b with all A items of a for a thread, UNROLL times.
// Memory:  vectors of VEC_WIDTH items on both sides; the transpose happens in registers, without shared memory.
// Threads: threads are independent; UNROLL tiles of a thread are in flight together.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: items of a vector; A: extent of axis a, small; UNROLL: tiles of a thread, 1 or more; RANK: the other axes.

#include "pdl.cuh"
#include "fast_division.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) movement_zip(const __grid_constant__ Params p) {
    pdl_wait();
    const Count first = (Count)blockIdx.x * (THREADS * UNROLL) + threadIdx.x, count = (Count)p.count;
    Vec<Item, VEC_WIDTH> fragment[UNROLL][A];
    long long to[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const Count i = first + u * THREADS;
        if (i >= count) break;
        Count rem = quotient(i, p.vecs_b, p.magic_vecs);
        const long long b = (long long)(i - rem * (Count)p.vecs_b) * VEC_WIDTH;
        long long from = p.x_start + b * (RUNS_IN_X ? A : 1);
        to[u] = p.y_start + b * (RUNS_IN_X ? 1 : A);
        #pragma unroll
        for (int j = RANK - 1; j >= 0; --j) {
            const Count outer = quotient(rem, p.size[j], p.magic[j]);
            const long long at = (long long)(rem - outer * (Count)p.size[j]);
            from += at * p.x_stride[j];
            to[u] += at * p.y_stride[j];
            rem = outer;
        }
        #pragma unroll
        for (int k = 0; k < A; ++k) fragment[u][k] = load_vec<VEC_WIDTH>((const Item*)p.x + from + k * (RUNS_IN_X ? VEC_WIDTH : p.x_stride_a));
    }
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (first + u * THREADS >= count) break;
        #pragma unroll
        for (int k = 0; k < A; ++k) {
            Vec<Item, VEC_WIDTH> vec;
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                const int i = RUNS_IN_X ? e * A + k : k * VEC_WIDTH + e;  // in the run
                vec.data[e] = RUNS_IN_X ? fragment[u][i / VEC_WIDTH].data[i % VEC_WIDTH] : fragment[u][i % A].data[i / A];
            }
            store_vec<VEC_WIDTH>((Item*)p.y + to[u] + k * (RUNS_IN_X ? p.y_stride_a : VEC_WIDTH), vec);
        }
    }
}
