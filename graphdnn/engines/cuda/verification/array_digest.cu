// array_digest computes a 64-bit digest of an array: the sum, modulo 2^64, of a hash of each 8-byte word and its index (the
// finalizer of SplitMix64). The order of a sum does not matter, so the digest is the same for every division among threads.
//
// Tile:    one word for a thread at a time, four in flight.
// Memory:  the array is contiguous and aligned to 8 bytes; zeros fill the last word.
// Threads: the grid strides over the words. A warp adds its sums by shuffles, and one lane adds them to *sum. A CTA has 256
//          threads.

struct Params {
    const unsigned long long* words;
    long long bytes;
    unsigned long long* sum;
};

static __device__ __forceinline__ unsigned long long hash_word(unsigned long long word, long long index) {
    word ^= (unsigned long long)(index + 1) * 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

extern "C" __global__ void __launch_bounds__(256) array_digest(const __grid_constant__ Params p) {
    const long long count = p.bytes / 8, stride = (long long)gridDim.x * 256;
    unsigned long long sum = 0;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += stride) sum += hash_word(p.words[i], i);
    if (blockIdx.x == 0 && threadIdx.x == 0 && p.bytes % 8) {
        const unsigned char* tail = (const unsigned char*)(p.words + count);
        unsigned long long word = 0;
        for (int i = 0; i < p.bytes % 8; ++i) word |= (unsigned long long)tail[i] << (8 * i);
        sum += hash_word(word, count);
    }
    #pragma unroll
    for (int lane_mask = 16; lane_mask; lane_mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane_mask);
    if (threadIdx.x % 32 == 0) atomicAdd(p.sum, sum);
}
