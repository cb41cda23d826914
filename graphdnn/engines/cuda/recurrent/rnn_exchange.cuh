// CTAs exchange values without a barrier. Memory is filled with a word that is no value, and a reader polls until all words
// differ from it. Four 16-bit values are stored as one 64-bit word, which no reader sees in part. Rounding to 16 bits never
// gives a NaN with the bits of ABSENT.

constexpr unsigned int ABSENT = 0xffffffffu;

__device__ __forceinline__ uint4 load_shared_words(const uint4* from) {
#ifdef __CUDA_ARCH__
    unsigned long long low, high;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(low), "=l"(high) : "l"(from));
    return make_uint4((unsigned int)low, (unsigned int)(low >> 32), (unsigned int)high, (unsigned int)(high >> 32));
#else
    return *from;
#endif
}

// Stores the values of four adjacent lanes. All lanes of the warp call it; the first of four stores.
__device__ __forceinline__ void store_shared_four(unsigned short bits, void* to, bool is_there) {
    const unsigned int pair = bits | __shfl_down_sync(0xffffffffu, (unsigned int)bits, 1) << 16;
    const unsigned int other = __shfl_down_sync(0xffffffffu, pair, 2);
    if (!is_there || threadIdx.x % 4 > 0) return;
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(pair | (unsigned long long)other << 32));
#else
    *(unsigned long long*)to = pair | (unsigned long long)other << 32;
#endif
}

__device__ __forceinline__ bool is_absent(const uint4& words) { return words.x == ABSENT || words.z == ABSENT; }

// Loads the words FIRST to LAST of each OF_ROW until none is absent.
template <int FIRST, int LAST, int OF_ROW, int COUNT, class Addresses>
__device__ __forceinline__ void gather_part(const Addresses& from, uint4 (&to)[COUNT]) {
    for (bool is_missing = FIRST < LAST; is_missing;) {
        is_missing = false;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i % OF_ROW >= FIRST && i % OF_ROW < LAST) to[i] = load_shared_words(from(i));
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i % OF_ROW >= FIRST && i % OF_ROW < LAST) is_missing |= is_absent(to[i]);
#ifndef __CUDA_ARCH__
        __nanosleep(0);
#endif
    }
}

// Loads the words at `from(i)`, OF_ROW for each sequence. It polls the words that are written last, and only then loads the
// others: redundant loads of all CTAs would slow the CTA that stores.
template <int OF_ROW, int TAIL, int COUNT, class Addresses>
__device__ __forceinline__ void gather(const Addresses& from, uint4 (&to)[COUNT]) {
    gather_part<OF_ROW - TAIL, OF_ROW, OF_ROW>(from, to);
    gather_part<0, OF_ROW - TAIL, OF_ROW>(from, to);
    __syncwarp();
}
