// Loads and stores with L2 cache policies.
//
// Required constants (from the generator): L1_NO_ALLOCATE: 1 if 16-byte loads do not allocate in L1.

template <int V, class How, class T> __device__ __forceinline__ void load_default(const T* from, How how, T (&to)[V]) {
    load<V>(from, how, to);
}

// The L2 eviction policy of loads.
struct L2Policy {
    unsigned long long word;

    template <int V, class T> __device__ __forceinline__ void load(const T* from, Packed, T (&to)[V]) const {
        constexpr int bytes = V * (int)sizeof(T), word_bytes = bytes < 16 ? bytes : 16;
        typedef typename Word<word_bytes>::type Access;
        Vec<T, V> vec;
        #pragma unroll
        for (int i = 0; i < bytes / word_bytes; ++i) ((Access*)&vec)[i] = load_word((const Access*)from + i);
        #pragma unroll
        for (int e = 0; e < V; ++e) to[e] = vec.data[e];
    }
    template <int V, class How, class T> __device__ __forceinline__ void load(const T* from, How how, T (&to)[V]) const {
        load_default<V>(from, how, to);
    }

#ifdef __CUDA_ARCH__
    __device__ __forceinline__ uint4 load_word(const uint4* from) const {
        uint4 x;
        if constexpr (L1_NO_ALLOCATE)
            asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from), "l"(word));
        else
            asm("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from), "l"(word));
        return x;
    }
    __device__ __forceinline__ uint2 load_word(const uint2* from) const {
        uint2 x;
        asm("ld.global.nc.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;" : "=r"(x.x), "=r"(x.y) : "l"(from), "l"(word));
        return x;
    }
#endif
    template <class T> __device__ __forceinline__ T load_word(const T* from) const { return __ldg(from); }
};

__device__ __forceinline__ L2Policy evict_first_policy() {
    L2Policy policy = {};
#ifdef __CUDA_ARCH__
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.word));
#endif
    return policy;
}

__device__ __forceinline__ L2Policy evict_normal_policy() {
    L2Policy policy = {};
#ifdef __CUDA_ARCH__
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy.word));
#endif
    return policy;
}

// Streaming stores, for results that no kernel reads soon: L2 evicts them first.

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void store_word_streaming(uint4* to, uint4 x) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ void store_word_streaming(uint2* to, uint2 x) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x.x), "r"(x.y) : "memory");
}
#endif
template <class T> __device__ __forceinline__ void store_word_streaming(T* to, T x) { *to = x; }

template <int V, class T> __device__ __forceinline__ void store_streaming(T* to, Packed, const T (&from)[V]) {
    constexpr int bytes = V * (int)sizeof(T), word = bytes < 16 ? bytes : 16;
    typedef typename Word<word>::type Access;
    Vec<T, V> vec;
    #pragma unroll
    for (int e = 0; e < V; ++e) vec.data[e] = from[e];
    #pragma unroll
    for (int i = 0; i < bytes / word; ++i) store_word_streaming((Access*)to + i, ((const Access*)&vec)[i]);
}

template <int V, class How, class T> __device__ __forceinline__ void store_streaming(T* to, How how, const T (&from)[V]) {
    store<V>(to, how, from);
}
