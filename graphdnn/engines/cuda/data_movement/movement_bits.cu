// movement_bits transposes bits: axis a is contiguous in x, axis b is contiguous in y.
//
// Tile:    32 x 32 bits for a warp.
// Memory:  a thread reads one word along a and writes one word along b. WORDS: all words of y are whole and aligned.
// Threads: a warp transposes its tile by shuffles; warps are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. RANK: the other axes; WORDS: flag, see above.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int WARP_TILE = 32;

// Word i of x. x may end inside the word; the missing bytes are 0.
__device__ __forceinline__ unsigned int word_of(const Params& p, long long i) {
    const unsigned char* const x = (const unsigned char*)p.x;
    if (4 * i + 4 <= p.x_bytes) return ((const unsigned int*)x)[i];
    unsigned int word = 0;
    for (long long at = 4 * i; at < p.x_bytes; ++at) word |= (unsigned int)x[at] << (at & 3) * 8;
    return word;
}

// `count` bits of x from bit `first` on; higher bits of the result are undefined.
__device__ __forceinline__ unsigned int bits_from(const Params& p, long long first, int count) {
    const int shift = (int)(first & 31);
    const unsigned long long low = word_of(p, first >> 5);
    const unsigned long long high = shift + count > WARP_TILE ? word_of(p, (first >> 5) + 1) : 0;
    return (unsigned int)((high << 32 | low) >> shift);
}

// Bit j of thread i becomes bit i of thread j.
__device__ __forceinline__ unsigned int transpose_bits(unsigned int word, int lane) {
    unsigned int low_mask = 0x0000ffffu;  // bits that the lower lane of a pair keeps
    #pragma unroll
    for (int lane_mask = WARP_TILE / 2; lane_mask > 0; lane_mask /= 2) {
        const unsigned int other = __shfl_xor_sync(~0u, word, lane_mask);
        word = lane & lane_mask ? (word & ~low_mask) | ((other & ~low_mask) >> lane_mask) : (word & low_mask) | ((other & low_mask) << lane_mask);
        low_mask ^= low_mask << (lane_mask / 2);
    }
    return word;
}

extern "C" __global__ void __launch_bounds__(THREADS) movement_bits(const __grid_constant__ Params p) {
    pdl_wait();
    const int lane = (int)threadIdx.x % WARP_TILE;
    const Count tile = (Count)blockIdx.x * (THREADS / WARP_TILE) + threadIdx.x / WARP_TILE;
    if (tile >= (Count)p.tiles) return;  // the same for all lanes of a warp
    const Count column = quotient(tile, p.tiles_a, p.magic_a);
    const int a = (int)(tile - column * (Count)p.tiles_a) * WARP_TILE;
    Count rem = quotient(column, p.tiles_b, p.magic_b);
    const int b = (int)(column - rem * (Count)p.tiles_b) * WARP_TILE;
    long long x = p.x_start, y = p.y_start;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rem, p.size[j], p.magic[j]);
        const long long at = (long long)(rem - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rem = outer;
    }
    const int extent_a = (int)p.a_size - a, extent_b = (int)p.b_size - b;
    unsigned int word = 0;
    if (lane < extent_b) word = bits_from(p, x + (long long)(b + lane) * p.x_stride_b + a, extent_a < WARP_TILE ? extent_a : WARP_TILE);
    word = transpose_bits(word, lane);
    if (lane >= extent_a) return;
    unsigned char* const to = (unsigned char*)p.y + ((y + (long long)(a + lane) * p.y_stride_a + b) >> 3);
    if constexpr (WORDS) {
        *(unsigned int*)to = word;
    } else {
        #pragma unroll
        for (int i = 0; i < WARP_TILE / 8; ++i)
            if (8 * i < extent_b) to[i] = (unsigned char)(word >> 8 * i);
    }
}
