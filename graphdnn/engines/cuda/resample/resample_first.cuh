// Finds the first element of a window that equals its maximum.

// Zeros get one sign and NaNs one encoding, so that equal numbers have equal bits.
template <class T> __device__ __forceinline__ T plain(T x) { return x; }
template <class T> __device__ __forceinline__ bool is_same(T a, T b) { return a == b || (a != a && b != b); }
#ifdef __CUDA_ARCH__
template <> __device__ __forceinline__ float plain(float x) { return x + 0.0f; }
template <> __device__ __forceinline__ bool is_same(float a, float b) { return __float_as_uint(a) == __float_as_uint(b); }
#endif

template <int N> __device__ __forceinline__ Compute largest_of(const Compute (&values)[N]) {
    Compute largest = values[N - 1];
    #pragma unroll
    for (int i = N - 2; i >= 0; --i) largest = larger(values[i], largest);
    return largest;
}

// Of N elements, the first that equals the maximum receives the gradient.
template <int N> struct Chosen {
    bool is[N];
};
template <int N> __device__ __forceinline__ Chosen<N> first_of(const Compute (&values)[N], Compute largest) {
    Chosen<N> chosen;
    bool is_found = false;
    #pragma unroll
    for (int i = 0; i < N; ++i) {
        chosen.is[i] = !IS_MAXIMUM || (!is_found && (i == N - 1 || is_same(values[i], largest)));
        is_found = is_found || chosen.is[i];
    }
    return chosen;
}
