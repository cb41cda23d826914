// The order of a window's elements: NaN is above everything if it propagates, else below everything.

template <class T> __device__ __forceinline__ bool beats(T challenger, T holder) {
    if constexpr (is_floating<T>) {
        const T wins = PROPAGATE ? challenger : holder, loses = PROPAGATE ? holder : challenger;
        return challenger > holder || (wins != wins && loses == loses);
    } else {
        return challenger > holder;
    }
}

template <class T> __device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -(T)INFINITY;
    else return (T)(1ull << (sizeof(T) * 8 - 1));
}
