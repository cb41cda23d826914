// Stores of results that nobody reads soon: they leave the second level of cache first.

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
    Pack<T, V> pack;
    #pragma unroll
    for (int e = 0; e < V; ++e) pack.at[e] = from[e];
    #pragma unroll
    for (int i = 0; i < bytes / word; ++i) store_word_streaming((Access*)to + i, ((const Access*)&pack)[i]);
}

template <int V, class How, class T> __device__ __forceinline__ void store_streaming(T* to, How how, const T (&from)[V]) {
    store<V>(to, how, from);
}
