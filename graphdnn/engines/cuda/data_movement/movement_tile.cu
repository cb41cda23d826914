// movement_tile transposes items: axis a is contiguous in x, axis b is contiguous in y.
//
// Tile:    TILE x TILE items for a CTA.
// Memory:  x rows (b) -> vectors along a -> shared memory -> vectors along b -> y rows (a). Rows of the tile shift by SKEW items
//          after every Y_VEC_WIDTH rows, so that the columns which a warp reads together are on different banks.
// Threads: LOADS_IN_FLIGHT accesses of a thread are in flight together.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   TILE: extent of a tile; X_VEC_WIDTH, Y_VEC_WIDTH: items of a vector of x and of y, divisors of TILE.
//   SKEW: items, see above; RANK: the other axes.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int LOADS_IN_FLIGHT = 8;  // vectors that a thread loads before it stores them

__device__ __forceinline__ int row_offset(int b) { return b * TILE + b / Y_VEC_WIDTH * SKEW; }

extern "C" __global__ void __launch_bounds__(THREADS) movement_tile(const __grid_constant__ Params p) {
    pdl_wait();
    __shared__ __align__(16) Item tile[TILE * TILE + TILE / Y_VEC_WIDTH * SKEW];

    const Count column = quotient((Count)blockIdx.x, p.tiles_b, p.magic_b);
    const int b0 = (int)((Count)blockIdx.x - column * (Count)p.tiles_b) * TILE;
    Count rem = quotient(column, p.tiles_a, p.magic_a);
    const int a0 = (int)(column - rem * (Count)p.tiles_a) * TILE;
    const Item* x = (const Item*)p.x + p.x_start;
    Item* y = (Item*)p.y + p.y_start;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rem, p.size[j], p.magic[j]);
        const long long at = (long long)(rem - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rem = outer;
    }

    constexpr int X_ROW_VECS = TILE / X_VEC_WIDTH, X_PASSES = TILE * X_ROW_VECS / THREADS;
    constexpr int X_LOADS_IN_FLIGHT = X_PASSES < LOADS_IN_FLIGHT ? X_PASSES : LOADS_IN_FLIGHT;
    #pragma unroll 1
    for (int pass = 0; pass < X_PASSES; pass += X_LOADS_IN_FLIGHT) {
        Vec<Item, X_VEC_WIDTH> fragment[X_LOADS_IN_FLIGHT];
        #pragma unroll
        for (int k = 0; k < X_LOADS_IN_FLIGHT; ++k) {
            const int i = (pass + k) * THREADS + threadIdx.x, b = b0 + i / X_ROW_VECS, a = a0 + i % X_ROW_VECS * X_VEC_WIDTH;
            if (b < (int)p.b_size && a < (int)p.a_size)
                fragment[k] = load_vec<X_VEC_WIDTH>(x + b * p.x_stride_b + a * p.x_stride_a);
        }
        #pragma unroll
        for (int k = 0; k < X_LOADS_IN_FLIGHT; ++k) {
            const int i = (pass + k) * THREADS + threadIdx.x;
            store_vec<X_VEC_WIDTH>(tile + row_offset(i / X_ROW_VECS) + i % X_ROW_VECS * X_VEC_WIDTH, fragment[k]);
        }
    }
    __syncthreads();
    constexpr int Y_ROW_VECS = TILE / Y_VEC_WIDTH, Y_PASSES = TILE * Y_ROW_VECS / THREADS;
    #pragma unroll(Y_PASSES < LOADS_IN_FLIGHT ? Y_PASSES : LOADS_IN_FLIGHT)
    for (int pass = 0; pass < Y_PASSES; ++pass) {
        const int i = pass * THREADS + threadIdx.x, a = i / Y_ROW_VECS, b = i % Y_ROW_VECS * Y_VEC_WIDTH;
        if (a0 + a >= (int)p.a_size || b0 + b >= (int)p.b_size) continue;
        Vec<Item, Y_VEC_WIDTH> vec;
        #pragma unroll
        for (int k = 0; k < Y_VEC_WIDTH; ++k) vec.data[k] = tile[row_offset(b + k) + a];
        store_vec<Y_VEC_WIDTH>(y + (a0 + a) * p.y_stride_a + (b0 + b) * p.y_stride_b, vec);
    }
}
