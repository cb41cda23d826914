// Rounded<T, V>: a vector of V 16-bit values, two in a word, which an epilogue takes instead of accumulators. A value that is only
// stored stays in its word (epilogue_16bit.cuh).
template <class T, int V> struct Rounded {
    unsigned int word[(V + 1) / 2];
    __device__ __forceinline__ T operator[](int e) const {
        T x;
        x.bits = (unsigned short)(word[e / 2] >> 16 * (e % 2));
        return x;
    }
};

template <int V, class T, class How>
__device__ __forceinline__ void store_if(bool valid, T* to, How how, const Rounded<T, V>& from) {
    if constexpr (same<How, Packed> && V > 1) {
        store_if<V / 2>(valid, (unsigned int*)to, how, from.word);
    } else {
        T elements[V];
        #pragma unroll
        for (int e = 0; e < V; ++e) elements[e] = from[e];
        store_if<V>(valid, to, how, elements);
    }
}
