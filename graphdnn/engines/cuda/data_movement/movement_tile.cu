// movement_tile transposes items: axis a is contiguous in x, axis b is contiguous in y.
//
// Tile:    TILE x TILE items for a CTA.
// Memory:  x rows (b) -> vectors along a -> shared memory -> vectors along b -> y rows (a). Rows of the tile shift by SKEW items
//          after every Y_PACK rows, so that the columns which a warp reads together are on different banks.
// Threads: BATCH accesses of a thread are in flight together.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   TILE: extent of a tile; X_PACK, Y_PACK: items of a vector of x and of y, divisors of TILE.
//   SKEW: items, see above; RANK: the other axes.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int BATCH = 8;  // accesses under way at once

__device__ __forceinline__ int tile_row(int b) { return b * TILE + b / Y_PACK * SKEW; }

extern "C" __global__ void __launch_bounds__(THREADS) movement_tile(const __grid_constant__ Params p) {
    pdl_wait();
    __shared__ __align__(16) Item tile[TILE * TILE + TILE / Y_PACK * SKEW];

    const Count column = quotient((Count)blockIdx.x, p.tiles_b, p.magic_b);
    const int b0 = (int)((Count)blockIdx.x - column * (Count)p.tiles_b) * TILE;
    Count rest = quotient(column, p.tiles_a, p.magic_a);
    const int a0 = (int)(column - rest * (Count)p.tiles_a) * TILE;
    const Item* x = (const Item*)p.x + p.x_start;
    Item* y = (Item*)p.y + p.y_start;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rest, p.size[j], p.magic[j]);
        const long long at = (long long)(rest - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rest = outer;
    }

    constexpr int X_PACKS = TILE / X_PACK, X_TURNS = TILE * X_PACKS / THREADS;
    constexpr int X_BATCH = X_TURNS < BATCH ? X_TURNS : BATCH;
    #pragma unroll 1
    for (int turn = 0; turn < X_TURNS; turn += X_BATCH) {
        Vec<Item, X_PACK> held[X_BATCH];
        #pragma unroll
        for (int k = 0; k < X_BATCH; ++k) {
            const int i = (turn + k) * THREADS + threadIdx.x, b = b0 + i / X_PACKS, a = a0 + i % X_PACKS * X_PACK;
            if (b < (int)p.b_size && a < (int)p.a_size)
                held[k] = load_vec<X_PACK>(x + b * p.x_stride_b + a * p.x_stride_a);
        }
        #pragma unroll
        for (int k = 0; k < X_BATCH; ++k) {
            const int i = (turn + k) * THREADS + threadIdx.x;
            store_vec<X_PACK>(tile + tile_row(i / X_PACKS) + i % X_PACKS * X_PACK, held[k]);
        }
    }
    __syncthreads();
    constexpr int Y_PACKS = TILE / Y_PACK, Y_TURNS = TILE * Y_PACKS / THREADS;
    #pragma unroll(Y_TURNS < BATCH ? Y_TURNS : BATCH)
    for (int turn = 0; turn < Y_TURNS; ++turn) {
        const int i = turn * THREADS + threadIdx.x, a = i / Y_PACKS, b = i % Y_PACKS * Y_PACK;
        if (a0 + a >= (int)p.a_size || b0 + b >= (int)p.b_size) continue;
        Vec<Item, Y_PACK> pack;
        #pragma unroll
        for (int k = 0; k < Y_PACK; ++k) pack.data[k] = tile[tile_row(b + k) + a];
        store_vec<Y_PACK>(y + (a0 + a) * p.y_stride_a + (b0 + b) * p.y_stride_b, pack);
    }
}
