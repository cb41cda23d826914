// Finds the first element of a window that equals its maximum.

#include "resample_order.cuh"

// Zeros get one sign and NaNs one encoding, so that equal numbers have equal bits.
template <class T> __device__ __forceinline__ T canonical(T x) { return x; }
template <class T> __device__ __forceinline__ bool is_same(T a, T b) { return a == b || (a != a && b != b); }
#ifdef __CUDA_ARCH__
template <> __device__ __forceinline__ float canonical(float x) { return x + 0.0f; }
template <> __device__ __forceinline__ bool is_same(float a, float b) { return __float_as_uint(a) == __float_as_uint(b); }
#endif

template <int N> __device__ __forceinline__ Compute maximum(const Compute (&values)[N]) {
    Compute largest = values[N - 1];
    #pragma unroll
    for (int i = N - 2; i >= 0; --i) largest = maximum_of(values[i], largest);
    return largest;
}

// Of N elements, the first that equals the maximum receives the gradient.
template <int N> struct FirstMaximum {
    bool is[N];
};
template <int N> __device__ __forceinline__ FirstMaximum<N> first_maximum(const Compute (&values)[N], Compute largest) {
    FirstMaximum<N> first;
    bool has_first = false;
    #pragma unroll
    for (int i = 0; i < N; ++i) {
        first.is[i] = !IS_MAXIMUM || (!has_first && (i == N - 1 || is_same(values[i], largest)));
        has_first = has_first || first.is[i];
    }
    return first;
}
