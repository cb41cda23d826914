// Values that blocks hand to each other without a barrier: memory is filled with words that no value is, and who needs a
// value reads until it is there. Each word is written once, whole. (Rounding to 16 bits never gives a NaN of these bits.)

constexpr unsigned int ABSENT = 0xffffffffu;

__device__ __forceinline__ uint4 load_shared_words(const uint4* from) {
#ifdef __CUDA_ARCH__
    uint4 to;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "l"(from));
    return to;
#else
    return *from;
#endif
}

__device__ __forceinline__ void store_shared_word(unsigned int* to, unsigned int word) {
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word));
#else
    *to = word;
#endif
}

__device__ __forceinline__ bool is_absent(const uint4& words) {
    return words.x == ABSENT || words.y == ABSENT || words.z == ABSENT || words.w == ABSENT;
}

// Those at `from(i)`, read until they are there; 0 without an address. Addresses are worked out again where they are needed
// again, which is cheaper than to keep them.
template <int COUNT, class Addresses> __device__ __forceinline__ void gather(const Addresses& from, uint4 (&to)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const uint4* const at = from(i);
        to[i] = make_uint4(0, 0, 0, 0);
        if (at) to[i] = load_shared_words(at);
    }
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
