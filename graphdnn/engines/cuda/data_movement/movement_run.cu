// movement_run transposes two axes of which b has adjacent items on one side, and a block of b with all of a is one contiguous run
// on the other side. OF_X: the runs are in x.
//
// Tile:    p.rows items of b with all of a for a CTA.
// Memory:  the run is copied as it lies to or from shared memory; the other side is accessed in vectors of PACK along b.
// Threads: BATCH accesses of a thread are in flight together. The next launch does not start early: CTAs that start in pairs at
//          one time would also end at one time.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. PACK: items of a vector; RANK: the other axes; OF_X: flag, see above.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int BATCH = 4;  // accesses under way at once

extern "C" __global__ void __launch_bounds__(THREADS) movement_run(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Item* const run = (Item*)memory;
    pdl_wait();
    const Count column = quotient((Count)blockIdx.x, p.tiles_b, p.magic_b);
    const int first_b = (int)((Count)blockIdx.x - column * (Count)p.tiles_b) * (int)p.rows;
    const Item* x = (const Item*)p.x + p.x_start + first_b * p.x_stride_b;
    Item* y = (Item*)p.y + p.y_start + first_b * p.y_stride_b;
    Count rest = column;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rest, p.size[j], p.magic[j]);
        const long long at = (long long)(rest - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rest = outer;
    }
    const int a_size = (int)p.a_size, packs_b = (int)p.packs_b, rows = min((int)p.rows, (int)p.b_size - first_b);
    const int packs_of_run = rows * a_size / PACK, packs = a_size * packs_b;
    struct Place { int a, b; };  // of neighbours along b
    const auto place_of = [&](int pack) {
        const int a = (int)quotient((Count)pack, p.packs_b, p.magic_packs);
        return Place{a, (pack - a * packs_b) * PACK};
    };
    #pragma unroll 1
    for (int first = threadIdx.x; first < (OF_X ? packs_of_run : packs); first += THREADS * BATCH) {
        Vec<Item, PACK> held[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const int i = first + k * THREADS;
            if constexpr (OF_X) {
                if (i < packs_of_run) held[k] = load_vec<PACK>(x + i * PACK);
            } else {
                const Place at = place_of(i);
                if (i < packs && at.b < rows) held[k] = load_vec<PACK>(x + at.a * p.x_stride_a + at.b);
            }
        }
        #pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const int i = first + k * THREADS;
            if constexpr (OF_X) {
                if (i < packs_of_run) store_vec<PACK>(run + i * PACK, held[k]);
            } else {
                const Place at = place_of(i);
                if (i >= packs || at.b >= rows) continue;
                #pragma unroll
                for (int e = 0; e < PACK; ++e) run[(at.b + e) * a_size + at.a] = held[k].data[e];
            }
        }
    }
    __syncthreads();
    #pragma unroll BATCH
    for (int i = threadIdx.x; i < (OF_X ? packs : packs_of_run); i += THREADS) {
        if constexpr (OF_X) {
            const Place at = place_of(i);
            if (at.b >= rows) continue;
            Vec<Item, PACK> pack;
            #pragma unroll
            for (int e = 0; e < PACK; ++e) pack.data[e] = run[(at.b + e) * a_size + at.a];
            store_vec<PACK>(y + at.a * p.y_stride_a + at.b, pack);
        } else {
            store_vec<PACK>(y + i * PACK, load_vec<PACK>(run + i * PACK));
        }
    }
}
