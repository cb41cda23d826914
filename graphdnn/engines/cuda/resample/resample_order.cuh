// The order of a window's elements: NaN is above every number if it propagates, and below every number otherwise.
//
// Required constants (from the generator): PROPAGATE: 1 if NaN propagates; 0 if a window ignores NaN.

template <class T> __device__ __forceinline__ bool is_greater(T challenger, T holder) {
    if constexpr (is_floating<T>) {
        const T number = PROPAGATE ? holder : challenger;  // if this one is NaN, the challenger does not win
        return !(challenger <= holder) && number == number;
    } else {
        return challenger > holder;
    }
}

template <class T> __device__ __forceinline__ T maximum_of(T a, T b) { return is_greater(b, a) ? b : a; }
#ifdef __CUDA_ARCH__
template <> __device__ __forceinline__ float maximum_of(float a, float b) {
    float result;
    if constexpr (PROPAGATE) asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    else asm("max.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
#endif

template <class T> __device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -(T)INFINITY;
    else return (T)(1ull << (sizeof(T) * 8 - 1));
}
