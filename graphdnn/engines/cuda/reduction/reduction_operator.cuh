// The operators of a reduction. OPERATOR is a number of ReductionOperator. NaN propagates; integers wrap.
enum { ADD, MUL, MIN, MAX, AMAX, AVG, NORM1, NORM2, MUL_NO_ZEROS };

template <class T> __device__ __forceinline__ T product(T a, T b) { return a * b; }
__device__ __forceinline__ int product(int a, int b) { return (int)((unsigned int)a * (unsigned int)b); }
__device__ __forceinline__ long long product(long long a, long long b) {
    return (long long)((unsigned long long)a * (unsigned long long)b);
}

__device__ __forceinline__ float magnitude(float a) { return fabsf(a); }
__device__ __forceinline__ double magnitude(double a) { return fabs(a); }
__device__ __forceinline__ int magnitude(int a) { return a < 0 ? (int)(0u - (unsigned int)a) : a; }
__device__ __forceinline__ long long magnitude(long long a) {
    return a < 0 ? (long long)(0ull - (unsigned long long)a) : a;
}

template <class T> __device__ __forceinline__ T larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T smaller(T a, T b) { return a < b || a != a ? a : b; }
#ifdef __CUDA_ARCH__
__device__ __forceinline__ float larger(float a, float b) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
__device__ __forceinline__ float smaller(float a, float b) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
#endif

// The least and the greatest value of a type.
template <class T> __device__ __forceinline__ T lowest() {
    if constexpr (is_floating<T>) return -(T)INFINITY;
    else return (T)(1ull << (sizeof(T) * 8 - 1));
}
template <class T> __device__ __forceinline__ T highest() {
    if constexpr (is_floating<T>) return (T)INFINITY;
    else return (T)((1ull << (sizeof(T) * 8 - 1)) - 1);
}

__device__ __forceinline__ Compute identity() {
    if constexpr (OPERATOR == MUL || OPERATOR == MUL_NO_ZEROS) return (Compute)1;
    else if constexpr (OPERATOR == MAX || OPERATOR == AMAX) return lowest<Compute>();
    else if constexpr (OPERATOR == MIN) return highest<Compute>();
    else return (Compute)0;
}

__device__ __forceinline__ Compute combined(Compute a, Compute b) {
    if constexpr (OPERATOR == MUL || OPERATOR == MUL_NO_ZEROS) return product(a, b);
    else if constexpr (OPERATOR == MAX || OPERATOR == AMAX) return larger(a, b);
    else if constexpr (OPERATOR == MIN) return smaller(a, b);
    else return wrapping_sum(a, b);
}

__device__ __forceinline__ void accumulate(Compute (&acc)[PARTS][VEC_WIDTH], const Compute (&value)[ROWS][VEC_WIDTH]) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        const Compute x = value[0][e];
        if constexpr (OPERATOR == NORM2) multiply_add(acc[0][e], x, x);
        else if constexpr (OPERATOR == MUL_NO_ZEROS) acc[0][e] = combined(acc[0][e], x == (Compute)0 ? (Compute)1 : x);
        else if constexpr (OPERATOR == NORM1 || OPERATOR == AMAX) acc[0][e] = combined(acc[0][e], magnitude(x));
        else acc[0][e] = combined(acc[0][e], x);
    }
}

template <class T> __device__ __forceinline__ T root(T a) { return a; }  // NORM2 requires floats
__device__ __forceinline__ float root(float a) { return sqrtf(a); }
__device__ __forceinline__ double root(double a) { return sqrt(a); }

__device__ __forceinline__ Compute concluded(const Params& p, Compute a) {
    if constexpr (OPERATOR == AVG) return a / (Compute)p.elements;
    else if constexpr (OPERATOR == NORM2) return root(a);
    else return a;
}
