// movement_bits transposes bits: axis a is contiguous in x, axis b is contiguous in y.
//
// Tile:    a square of 32 x 32 bits for a warp.
// Memory:  a thread reads one word along a and writes one word along b. WORDS: all words of y are whole and aligned.
// Threads: the warp transposes its square by shuffles; warps are independent.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. RANK: the other axes; WORDS: flag, see above.

#include "pdl.cuh"
#include "fast_division.cuh"

constexpr int SIDE = 32;

// Word i of x's memory, which may end inside it.
__device__ __forceinline__ unsigned int word_of(const Params& p, long long i) {
    const unsigned char* const x = (const unsigned char*)p.x;
    if (4 * i + 4 <= p.x_bytes) return ((const unsigned int*)x)[i];
    unsigned int word = 0;
    for (long long at = 4 * i; at < p.x_bytes; ++at) word |= (unsigned int)x[at] << (at & 3) * 8;
    return word;
}

// `count` bits of x from one on; whatever is above them.
__device__ __forceinline__ unsigned int bits_from(const Params& p, long long first, int count) {
    const int shift = (int)(first & 31);
    const unsigned long long low = word_of(p, first >> 5);
    const unsigned long long high = shift + count > SIDE ? word_of(p, (first >> 5) + 1) : 0;
    return (unsigned int)((high << 32 | low) >> shift);
}

// Bit j of thread i becomes bit i of thread j.
__device__ __forceinline__ unsigned int turned(unsigned int word, int lane) {
    unsigned int kept = 0x0000ffffu;  // of the lower one of two threads
    #pragma unroll
    for (int apart = SIDE / 2; apart > 0; apart /= 2) {
        const unsigned int other = __shfl_xor_sync(~0u, word, apart);
        word = lane & apart ? (word & ~kept) | ((other & ~kept) >> apart) : (word & kept) | ((other & kept) << apart);
        kept ^= kept << (apart / 2);
    }
    return word;
}

extern "C" __global__ void __launch_bounds__(THREADS) movement_bits(const __grid_constant__ Params p) {
    pdl_wait();
    const int lane = (int)threadIdx.x % SIDE;
    const Count square = (Count)blockIdx.x * (THREADS / SIDE) + threadIdx.x / SIDE;
    if (square >= (Count)p.squares) return;  // whole warps
    const Count column = quotient(square, p.squares_a, p.magic_a);
    const int a = (int)(square - column * (Count)p.squares_a) * SIDE;
    Count rest = quotient(column, p.squares_b, p.magic_b);
    const int b = (int)(column - rest * (Count)p.squares_b) * SIDE;
    long long x = p.x_start, y = p.y_start;
    #pragma unroll
    for (int j = RANK - 1; j >= 0; --j) {
        const Count outer = quotient(rest, p.size[j], p.magic[j]);
        const long long at = (long long)(rest - outer * (Count)p.size[j]);
        x += at * p.x_stride[j];
        y += at * p.y_stride[j];
        rest = outer;
    }
    const int along_a = (int)p.a_size - a, along_b = (int)p.b_size - b;
    unsigned int word = 0;
    if (lane < along_b) word = bits_from(p, x + (long long)(b + lane) * p.x_stride_b + a, along_a < SIDE ? along_a : SIDE);
    word = turned(word, lane);
    if (lane >= along_a) return;
    unsigned char* const to = (unsigned char*)p.y + ((y + (long long)(a + lane) * p.y_stride_a + b) >> 3);
    if constexpr (WORDS) {
        *(unsigned int*)to = word;
    } else {
        #pragma unroll
        for (int i = 0; i < SIDE / 8; ++i)
            if (8 * i < along_b) to[i] = (unsigned char)(word >> 8 * i);
    }
}
