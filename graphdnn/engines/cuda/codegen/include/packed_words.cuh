// Vectors that stay in registers during other work: narrow elements are packed into 32-bit words, as they lie in memory. As
// fields of a struct each element would take a register of its own.

template <class T, int N> struct __align__(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Words {
    static constexpr int OF_WORD = 4 / (int)sizeof(T);
    unsigned int word[N / OF_WORD];
};

template <class T, int N> __device__ __forceinline__ void keep_pack(const Vec<T, N>& from, Vec<T, N>& to) { to = from; }
template <class T, int N> __device__ __forceinline__ void keep_pack(const Vec<T, N>& from, Words<T, N>& to) {
    constexpr int of_word = Words<T, N>::OF_WORD;
    #pragma unroll
    for (int i = 0; i < N / of_word; ++i) {
        unsigned int word = 0;
        #pragma unroll
        for (int k = 0; k < of_word; ++k) word |= (unsigned int)from.data[i * of_word + k].bits << 8 * (int)sizeof(T) * k;
        to.word[i] = word;
    }
}

// Convert the elements to the compute type.
template <class T, int N> __device__ __forceinline__ void widen_pack(const Vec<T, N>& from, Compute (&to)[N]) {
    #pragma unroll
    for (int e = 0; e < N; ++e) to[e] = widen<Compute>(from.data[e]);
}
template <class T, int N> __device__ __forceinline__ void widen_pack(const Words<T, N>& from, Compute (&to)[N]) {
    constexpr int of_word = Words<T, N>::OF_WORD;
    #pragma unroll
    for (int e = 0; e < N; ++e) {
#ifdef __CUDA_ARCH__
        if constexpr (same<T, half_t> && same<Compute, float>) {  // cvt reads either half of a register
            if (e % 2 == 0)
                asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
                    : "=f"(to[e]), "=f"(to[e + 1]) : "r"(from.word[e / 2]));
            continue;
        }
#endif
        T element;
        element.bits = from.word[e / of_word] >> 8 * (int)sizeof(T) * (e % of_word);
        to[e] = widen<Compute>(element);
    }
}
