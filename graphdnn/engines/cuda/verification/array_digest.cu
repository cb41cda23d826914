// A number for the bytes of an array: the sum, modulo 2^64, of what each word and its place are mixed into
// (SplitMix64's finalizer). Sums have no order, so the number is the same however the words are divided among threads.

struct Params {
    const unsigned long long* words;
    long long bytes;
    unsigned long long* sum;
};

static __device__ __forceinline__ unsigned long long mixed(unsigned long long word, long long place) {
    word ^= (unsigned long long)(place + 1) * 0x9e3779b97f4a7c15ull;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

extern "C" __global__ void __launch_bounds__(256) array_digest(const __grid_constant__ Params p) {
    const long long count = p.bytes / 8, step = (long long)gridDim.x * 256;
    unsigned long long sum = 0;
    #pragma unroll 4
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += step) sum += mixed(p.words[i], i);
    if (blockIdx.x == 0 && threadIdx.x == 0 && p.bytes % 8) {
        const unsigned char* rest = (const unsigned char*)(p.words + count);
        unsigned long long word = 0;
        for (int i = 0; i < p.bytes % 8; ++i) word |= (unsigned long long)rest[i] << (8 * i);
        sum += mixed(word, count);
    }
    #pragma unroll
    for (int away = 16; away; away /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, away);
    if (threadIdx.x % 32 == 0) atomicAdd(p.sum, sum);
}
