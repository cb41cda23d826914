// movement_run transposes axes a and b. On one side b is contiguous. On the other side a is contiguous and b follows it without
// gaps, so a block of b with all of a is one contiguous run. RUNS_IN_X: the runs are in x.
//
// Tile:    p.rows items of b with all of a for a CTA.
// Memory:  the run is copied as it lies to or from shared memory; the other side is accessed in vectors of VEC_WIDTH along b.
// Threads: LOADS_IN_FLIGHT accesses of a thread are in flight together. The kernel does not trigger the next launch early: CTAs
//          that start in pairs would also end in pairs.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. VEC_WIDTH: items of a vector; RANK: the other axes; RUNS_IN_X: flag, see above.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int LOADS_IN_FLIGHT = 4;  // vectors that a thread loads before it stores them

extern "C" __global__ void __launch_bounds__(THREADS) movement_run(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Item* const run = (Item*)memory;
    pdl_wait();
    const Count column = quotient((Count)blockIdx.x, p.tiles_b, p.magic_b);
    const int first_b = (int)((Count)blockIdx.x - column * (Count)p.tiles_b) * (int)p.rows;
    const Item* x = (const Item*)p.x + p.x_start + first_b * p.x_stride_b;
    Item* y = (Item*)p.y + p.y_start + first_b * p.y_stride_b;
    Count rem = column;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rem, p.size[j], p.magic[j]);
        const long long at = (long long)(rem - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rem = outer;
    }
    const int a_size = (int)p.a_size, vecs_b = (int)p.vecs_b, rows = min((int)p.rows, (int)p.b_size - first_b);
    const int run_vecs = rows * a_size / VEC_WIDTH, vecs = a_size * vecs_b;
    struct TileCoord { int a, b; };  // of the first item of a vector along b
    const auto coord_of = [&](int vec) {
        const int a = (int)quotient((Count)vec, p.vecs_b, p.magic_vecs);
        return TileCoord{a, (vec - a * vecs_b) * VEC_WIDTH};
    };
    #pragma unroll 1
    for (int first = threadIdx.x; first < (RUNS_IN_X ? run_vecs : vecs); first += THREADS * LOADS_IN_FLIGHT) {
        Vec<Item, VEC_WIDTH> fragment[LOADS_IN_FLIGHT];
        #pragma unroll
        for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
            const int i = first + k * THREADS;
            if constexpr (RUNS_IN_X) {
                if (i < run_vecs) fragment[k] = load_vec<VEC_WIDTH>(x + i * VEC_WIDTH);
            } else {
                const TileCoord at = coord_of(i);
                if (i < vecs && at.b < rows) fragment[k] = load_vec<VEC_WIDTH>(x + at.a * p.x_stride_a + at.b);
            }
        }
        #pragma unroll
        for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
            const int i = first + k * THREADS;
            if constexpr (RUNS_IN_X) {
                if (i < run_vecs) store_vec<VEC_WIDTH>(run + i * VEC_WIDTH, fragment[k]);
            } else {
                const TileCoord at = coord_of(i);
                if (i >= vecs || at.b >= rows) continue;
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) run[(at.b + e) * a_size + at.a] = fragment[k].data[e];
            }
        }
    }
    __syncthreads();
    #pragma unroll LOADS_IN_FLIGHT
    for (int i = threadIdx.x; i < (RUNS_IN_X ? vecs : run_vecs); i += THREADS) {
        if constexpr (RUNS_IN_X) {
            const TileCoord at = coord_of(i);
            if (at.b >= rows) continue;
            Vec<Item, VEC_WIDTH> vec;
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) vec.data[e] = run[(at.b + e) * a_size + at.a];
            store_vec<VEC_WIDTH>(y + at.a * p.y_stride_a + at.b, vec);
        } else {
            store_vec<VEC_WIDTH>(y + i * VEC_WIDTH, load_vec<VEC_WIDTH>(run + i * VEC_WIDTH));
        }
    }
}
