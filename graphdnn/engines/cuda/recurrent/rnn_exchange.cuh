// CTAs exchange values without a barrier. Memory is filled with a word that is no value, and a reader polls until all words
// differ from it. Four 16-bit values are stored as one 64-bit word, which no reader sees in part. Rounding to 16 bits never
// gives a NaN with the bits of ABSENT.

#include "mma.cuh"

constexpr unsigned int ABSENT = 0xffffffffu;

__device__ __forceinline__ uint4 load_relaxed(const uint4* from) {
#ifdef __CUDA_ARCH__
    unsigned long long low, high;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(low), "=l"(high) : "l"(from));
    return make_uint4((unsigned int)low, (unsigned int)(low >> 32), (unsigned int)high, (unsigned int)(high >> 32));
#else
    return *from;
#endif
}

// Stores the values of four adjacent lanes. All lanes of the warp call it; the first of four stores.
__device__ __forceinline__ void publish_four(unsigned short bits, void* to, bool is_stored) {
    const unsigned int pair = bits | __shfl_down_sync(0xffffffffu, (unsigned int)bits, 1) << 16;
    const unsigned int other = __shfl_down_sync(0xffffffffu, pair, 2);
    if (!is_stored || threadIdx.x % 4 > 0) return;
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(pair | (unsigned long long)other << 32));
#else
    *(unsigned long long*)to = pair | (unsigned long long)other << 32;
#endif
}

__device__ __forceinline__ bool has_absent(const uint4& words) { return words.x == ABSENT || words.z == ABSENT; }

// Loads the words FIRST to LAST of each ROW_WORDS until none is absent.
template <int FIRST, int LAST, int ROW_WORDS, int COUNT, class Addresses>
__device__ __forceinline__ void poll_words(const Addresses& from, uint4 (&to)[COUNT]) {
    for (bool is_pending = FIRST < LAST; is_pending;) {
        is_pending = false;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i % ROW_WORDS >= FIRST && i % ROW_WORDS < LAST) to[i] = load_relaxed(from(i));
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i % ROW_WORDS >= FIRST && i % ROW_WORDS < LAST) is_pending |= has_absent(to[i]);
#ifndef __CUDA_ARCH__
        __nanosleep(0);
#endif
    }
}

// Loads the words at `from(i)`, ROW_WORDS for each sequence. It polls the words that are written last, and only then loads the
// others: redundant loads of all CTAs would slow the CTA that stores.
template <int ROW_WORDS, int TAIL, int COUNT, class Addresses>
__device__ __forceinline__ void poll_all(const Addresses& from, uint4 (&to)[COUNT]) {
    poll_words<ROW_WORDS - TAIL, ROW_WORDS, ROW_WORDS>(from, to);
    poll_words<0, ROW_WORDS - TAIL, ROW_WORDS>(from, to);
    __syncwarp();
}
