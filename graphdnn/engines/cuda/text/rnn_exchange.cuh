// Values that blocks hand to each other without a barrier: memory is filled with words that no value is, and who needs a
// value reads until it is there. Four values of 16 bits are written at once, as one word that nobody sees in part. (Rounding
// to 16 bits never gives a NaN of these bits.)

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

// Those at `from(i)`, read until they are there. Addresses are worked out again where they are needed again, which is
// cheaper than to keep them.
template <int COUNT, class Addresses> __device__ __forceinline__ void gather(const Addresses& from, uint4 (&to)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) to[i] = load_shared_words(from(i));
    for (;;) {
        bool is_missing = false;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) is_missing |= is_absent(to[i]);
        if (!is_missing) break;
#ifndef __CUDA_ARCH__
        __nanosleep(0);
#endif
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (is_absent(to[i])) to[i] = load_shared_words(from(i));
    }
    __syncwarp();
}
