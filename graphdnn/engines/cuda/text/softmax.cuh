// What no element is below.
template <class T> __device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -(T)INFINITY;
    else return (T)(1ull << (sizeof(T) * 8 - 1));
}

// a / b for the many a of a row: b's reciprocal is computed once, and one step of Newton's method takes its rounding
// out of the quotient. Sums that are very large, very small or not numbers are divided by as usual.
__device__ __forceinline__ float quotient(float a, float b, float reciprocal) {
    if (!(b > 0x1p-60f && b < 0x1p60f)) return a / b;
    const float q = a * reciprocal;
    return fmaf(fmaf(-q, b, a), reciprocal, q);
}
