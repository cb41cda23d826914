// Values that blocks hand to each other without a barrier: memory is filled with words that no value is, and who needs a
// value reads until it is there. Four values of 16 bits are written at once, as one word that nobody sees in part. (Rounding
// to 16 bits never gives a NaN of these bits.)

#include "mma.cuh"

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

// The values of four neighbours in a warp. All of its threads call; the first of four stores.
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

// Those from FIRST to LAST of each OF_ROW, read until all are there.
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

// Those at `from(i)`, OF_ROW of each sequence. The last ones, which are written last, are asked for until they are there, and
// only then the others: what all blocks read in vain takes time from the one that writes.
template <int OF_ROW, int TAIL, int COUNT, class Addresses>
__device__ __forceinline__ void gather(const Addresses& from, uint4 (&to)[COUNT]) {
    gather_part<OF_ROW - TAIL, OF_ROW, OF_ROW>(from, to);
    gather_part<0, OF_ROW - TAIL, OF_ROW>(from, to);
    __syncwarp();
}
