// movement_odd transposes items whose rows do not begin at multiples of 16 bytes: axis a is contiguous in x, b in y.
//
// Tile:    p.tile_a x p.tile_b items for a CTA.
// Memory:  x rows (b) -> 16-byte words along a -> shared memory, at the same offset in a word as in x -> 16-byte words along b
//          -> y rows (a). The first and last word of a row may contain items of other rows; the ends of y rows are written item
//          by item. FLAT_X, FLAT_Y: the tile has the whole contiguous axis of that side, so its rows are one contiguous run.
// Threads: BATCH words of a thread are in flight together.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   PACK: items of 16 bytes; ROW: the most items of a tile row; RANK: the other axes; FLAT_X, FLAT_Y: flags, see above.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int BATCH = 6;  // accesses under way at once
constexpr int PITCH = ROW + PACK;

// Where row b of the tile begins in shared memory, and column a in it; rows lie a word further on after every PACK of them,
// so that those read next to each other come from different banks.
struct Tile {
    int a_size, shift, step;  // of x's rows; where row 0 begins in its first word, and each one from the one before
    __device__ __forceinline__ int at(int b, int a) const {
        if constexpr (FLAT_X) return shift + b * a_size + a;
        else return b * PITCH + b / PACK * PACK + (shift + b * step) % PACK + a;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) movement_odd(const __grid_constant__ Params p) {
    extern __shared__ uint4 words[];
    Item* const tile = (Item*)words;
    pdl_wait();
    const Count column = quotient((Count)blockIdx.x, p.tiles_b, p.magic_b);
    const int b0 = (int)((Count)blockIdx.x - column * (Count)p.tiles_b) * (int)p.tile_b;
    Count rest = quotient(column, p.tiles_a, p.magic_a);
    const int a0 = (int)(column - rest * (Count)p.tiles_a) * (int)p.tile_a;
    long long x = p.x_start + a0 * p.x_stride_a + b0 * p.x_stride_b, y = p.y_start + a0 * p.y_stride_a + b0 * p.y_stride_b;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rest, p.size[j], p.magic[j]);
        const long long at = (long long)(rest - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rest = outer;
    }
    const int along_a = min((int)p.tile_a, (int)p.a_size - a0), along_b = min((int)p.tile_b, (int)p.b_size - b0);
    const Tile places = {(int)p.a_size, (int)(x % PACK), (int)(p.x_stride_b % PACK)};

    const Item* const from = (const Item*)p.x;
    const int rows_x = FLAT_X ? 1 : along_b, length_x = FLAT_X ? along_a * along_b : along_a;
    const int words_x = FLAT_X ? (places.shift + length_x + PACK - 1) / PACK : (int)p.words_a;
    #pragma unroll 1
    for (int first = threadIdx.x; first < rows_x * words_x; first += THREADS * BATCH) {
        Vec<Item, PACK> held[BATCH];
        int to[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            const int i = first + k * THREADS, row = FLAT_X ? 0 : (int)quotient((Count)i, p.words_a, p.magic_words_a);
            const int word = i - row * words_x;
            const long long start = x + row * p.x_stride_b, at = start / PACK * PACK + word * PACK;
            const int shift = (int)(start % PACK);
            to[k] = row < rows_x && word * PACK < shift + length_x ? places.at(row, 0) - shift + word * PACK : -1;
            if (to[k] < 0) continue;
            if (at + PACK <= p.x_items) {
                held[k] = load_vec<PACK>(from + at);
            } else {
                #pragma unroll
                for (int e = 0; e < PACK; ++e)
                    if (at + e < p.x_items) held[k].data[e] = from[at + e];
            }
        }
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (to[k] >= 0) store_vec<PACK>(tile + to[k], held[k]);
    }
    __syncthreads();

    Item* const into = (Item*)p.y;
    const int rows_y = FLAT_Y ? 1 : along_a, length_y = FLAT_Y ? along_a * along_b : along_b;
    const int words_y = FLAT_Y ? ((int)(y % PACK) + length_y + PACK - 1) / PACK : (int)p.words_b;
    #pragma unroll 1
    for (int i = threadIdx.x; i < rows_y * words_y; i += THREADS) {
        const int row = FLAT_Y ? 0 : (int)quotient((Count)i, p.words_b, p.magic_words_b), word = i - row * words_y;
        const long long start = y + row * p.y_stride_a, at = start / PACK * PACK + word * PACK;
        const int before = word * PACK - (int)(start % PACK);  // items of the row ahead of the word's first
        if (before >= length_y) continue;
        int a = row, b = before;
        if constexpr (FLAT_Y) a = before / along_b, b = before - a * along_b;
        Vec<Item, PACK> pack;
        if (before >= 0 && before + PACK <= length_y) {
            #pragma unroll
            for (int e = 0; e < PACK; ++e) {
                pack.data[e] = tile[places.at(b, a)];
                if (++b == along_b && FLAT_Y) b = 0, ++a;
            }
            store_vec<PACK>(into + at, pack);
        } else {
            #pragma unroll
            for (int e = 0; e < PACK; ++e) {
                const int item = before + e;
                if (item < 0 || item >= length_y) continue;
                into[at + e] = FLAT_Y ? tile[places.at(item % along_b, item / along_b)] : tile[places.at(item, row)];
            }
        }
    }
}
