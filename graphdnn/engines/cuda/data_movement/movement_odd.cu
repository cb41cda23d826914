// movement_odd transposes items whose rows do not begin at multiples of 16 bytes: axis a is contiguous in x, b in y.
//
// Tile:    p.tile_a x p.tile_b items for a CTA.
// Memory:  x rows (b) -> 16-byte words along a -> shared memory, at the same offset in a word as in x -> 16-byte words along b
//          -> y rows (a). The first and last word of a row may contain items of other rows; the ends of y rows are written item
//          by item. FLAT_X, FLAT_Y: the tile has the whole contiguous axis of that side, so its rows are one contiguous run.
// Threads: LOADS_IN_FLIGHT words of a thread are in flight together.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH: items of 16 bytes; ROW_ITEMS: the most items of a tile row; RANK: the other axes; FLAT_X, FLAT_Y: flags, see
//   above.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int LOADS_IN_FLIGHT = 6;  // vectors that a thread loads before it stores them
constexpr int PITCH = ROW_ITEMS + VEC_WIDTH;

// Offsets of the tile in shared memory. A row keeps its offset in a 16-byte word of x. After every VEC_WIDTH rows one word of
// padding follows, so that the rows which a warp reads together are on different banks.
struct TileLayout {
    int a_size;  // items of a row of x
    int shift;   // offset of row 0 in its first word
    int step;    // by which that offset grows from row to row
    __device__ __forceinline__ int offset(int b, int a) const {
        if constexpr (FLAT_X) return shift + b * a_size + a;
        else return b * PITCH + b / VEC_WIDTH * VEC_WIDTH + (shift + b * step) % VEC_WIDTH + a;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) movement_odd(const __grid_constant__ Params p) {
    extern __shared__ uint4 words[];
    Item* const tile = (Item*)words;
    pdl_wait();
    const Count column = quotient((Count)blockIdx.x, p.tiles_b, p.magic_b);
    const int b0 = (int)((Count)blockIdx.x - column * (Count)p.tiles_b) * (int)p.tile_b;
    Count rem = quotient(column, p.tiles_a, p.magic_a);
    const int a0 = (int)(column - rem * (Count)p.tiles_a) * (int)p.tile_a;
    long long x = p.x_start + a0 * p.x_stride_a + b0 * p.x_stride_b, y = p.y_start + a0 * p.y_stride_a + b0 * p.y_stride_b;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rem, p.size[j], p.magic[j]);
        const long long at = (long long)(rem - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rem = outer;
    }
    const int extent_a = min((int)p.tile_a, (int)p.a_size - a0), extent_b = min((int)p.tile_b, (int)p.b_size - b0);
    const TileLayout layout = {(int)p.a_size, (int)(x % VEC_WIDTH), (int)(p.x_stride_b % VEC_WIDTH)};

    const Item* const from = (const Item*)p.x;
    const int rows_x = FLAT_X ? 1 : extent_b, length_x = FLAT_X ? extent_a * extent_b : extent_a;
    const int words_x = FLAT_X ? (layout.shift + length_x + VEC_WIDTH - 1) / VEC_WIDTH : (int)p.words_a;
    #pragma unroll 1
    for (int first = threadIdx.x; first < rows_x * words_x; first += THREADS * LOADS_IN_FLIGHT) {
        Vec<Item, VEC_WIDTH> fragment[LOADS_IN_FLIGHT];
        int to[LOADS_IN_FLIGHT];
        #pragma unroll
        for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
            const int i = first + k * THREADS, row = FLAT_X ? 0 : (int)quotient((Count)i, p.words_a, p.magic_words_a);
            const int word = i - row * words_x;
            const long long start = x + row * p.x_stride_b, at = start / VEC_WIDTH * VEC_WIDTH + word * VEC_WIDTH;
            const int shift = (int)(start % VEC_WIDTH);
            to[k] = row < rows_x && word * VEC_WIDTH < shift + length_x ? layout.offset(row, 0) - shift + word * VEC_WIDTH : -1;
            if (to[k] < 0) continue;
            if (at + VEC_WIDTH <= p.x_items) {
                fragment[k] = load_vec<VEC_WIDTH>(from + at);
            } else {
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e)
                    if (at + e < p.x_items) fragment[k].data[e] = from[at + e];
            }
        }
        #pragma unroll
        for (int k = 0; k < LOADS_IN_FLIGHT; ++k)
            if (to[k] >= 0) store_vec<VEC_WIDTH>(tile + to[k], fragment[k]);
    }
    __syncthreads();

    Item* const to_y = (Item*)p.y;
    const int rows_y = FLAT_Y ? 1 : extent_a, length_y = FLAT_Y ? extent_a * extent_b : extent_b;
    const int words_y = FLAT_Y ? ((int)(y % VEC_WIDTH) + length_y + VEC_WIDTH - 1) / VEC_WIDTH : (int)p.words_b;
    #pragma unroll 1
    for (int i = threadIdx.x; i < rows_y * words_y; i += THREADS) {
        const int row = FLAT_Y ? 0 : (int)quotient((Count)i, p.words_b, p.magic_words_b), word = i - row * words_y;
        const long long start = y + row * p.y_stride_a, at = start / VEC_WIDTH * VEC_WIDTH + word * VEC_WIDTH;
        const int before = word * VEC_WIDTH - (int)(start % VEC_WIDTH);  // items of the row before this word
        if (before >= length_y) continue;
        int a = row, b = before;
        if constexpr (FLAT_Y) a = before / extent_b, b = before - a * extent_b;
        Vec<Item, VEC_WIDTH> vec;
        if (before >= 0 && before + VEC_WIDTH <= length_y) {
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                vec.data[e] = tile[layout.offset(b, a)];
                if (++b == extent_b && FLAT_Y) b = 0, ++a;
            }
            store_vec<VEC_WIDTH>(to_y + at, vec);
        } else {
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                const int item = before + e;
                if (item < 0 || item >= length_y) continue;
                to_y[at + e] = FLAT_Y ? tile[layout.offset(item % extent_b, item / extent_b)] : tile[layout.offset(item, row)];
            }
        }
    }
}
