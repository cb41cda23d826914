// Vectors that stay in registers during other work. Narrow elements are packed into 32-bit words in their memory order; as
// separate fields of a struct, each element would take a register.

template <class T, int N> struct __align__(N * sizeof(T) < 16 ? N * sizeof(T) : 16) PackedWords {
    static constexpr int ELEMS_PER_WORD = 4 / (int)sizeof(T);
    unsigned int word[N / ELEMS_PER_WORD];
};

template <class T, int N> __device__ __forceinline__ void pack_words(const Vec<T, N>& from, Vec<T, N>& to) { to = from; }
template <class T, int N> __device__ __forceinline__ void pack_words(const Vec<T, N>& from, PackedWords<T, N>& to) {
    constexpr int elems_per_word = PackedWords<T, N>::ELEMS_PER_WORD;
    #pragma unroll
    for (int i = 0; i < N / elems_per_word; ++i) {
        unsigned int word = 0;
        #pragma unroll
        for (int k = 0; k < elems_per_word; ++k) word |= (unsigned int)from.data[i * elems_per_word + k].bits << 8 * (int)sizeof(T) * k;
        to.word[i] = word;
    }
}

// Convert the elements to the compute type.
template <class T, int N> __device__ __forceinline__ void unpack_words(const Vec<T, N>& from, Compute (&to)[N]) {
    #pragma unroll
    for (int e = 0; e < N; ++e) to[e] = widen<Compute>(from.data[e]);
}
template <class T, int N> __device__ __forceinline__ void unpack_words(const PackedWords<T, N>& from, Compute (&to)[N]) {
    constexpr int elems_per_word = PackedWords<T, N>::ELEMS_PER_WORD;
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
        element.bits = from.word[e / elems_per_word] >> 8 * (int)sizeof(T) * (e % elems_per_word);
        to[e] = widen<Compute>(element);
    }
}
