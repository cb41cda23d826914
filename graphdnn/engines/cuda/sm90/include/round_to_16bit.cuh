// Numbers of 16 bits, two in a word, as they come from lanes that exchanged them: what is only stored stays in its words.
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
        T each[V];
        #pragma unroll
        for (int e = 0; e < V; ++e) each[e] = from[e];
        store_if<V>(valid, to, how, each);
    }
}
