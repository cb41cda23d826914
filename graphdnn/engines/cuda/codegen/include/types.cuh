// Element types of kernel text, the conversions between memory and arithmetic, and vector access.
//
// widen and narrow agree bit by bit with the host: widen is NumPy's astype to the compute type, narrow is
// graphdnn.dtypes.cast. Floats round to nearest even, once; integers and fp8 saturate; NaN becomes 0 in an integer.

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };
struct e4m3_t { unsigned char bits; };
struct e5m2_t { unsigned char bits; };
struct bool_t { unsigned char bits; };

// There is no math.h here.
#ifndef INFINITY
#define INFINITY (__int_as_float(0x7f800000))
#endif
#ifndef NAN
#define NAN (__int_as_float(0x7fffffff))
#endif

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <class T> constexpr bool is_floating = same<T, float> || same<T, double>;

// ---- memory to arithmetic

__device__ __forceinline__ float half_to_float(unsigned short bits) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | magnitude << 13);
    // The bits as a float have an exponent that is too small by 112. The multiplication corrects it and normalizes subnormals.
    return __uint_as_float(sign | magnitude << 13) * 0x1p112f;
#endif
}

// The value of an element as the narrowest arithmetic type that holds it exactly.
template <class T> __device__ __forceinline__ T value_of(T x) { return x; }
__device__ __forceinline__ float value_of(half_t x) { return half_to_float(x.bits); }
__device__ __forceinline__ float value_of(bfloat_t x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float value_of(e5m2_t x) { return half_to_float((unsigned short)(x.bits << 8)); }
__device__ __forceinline__ float value_of(e4m3_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)x.bits));
    return half_to_float((unsigned short)pair);
#else
    const unsigned magnitude = x.bits & 0x7fu;
    if (magnitude == 0x7fu) return NAN;
    // The bits as a half have an exponent that is too small by 8.
    return half_to_float((unsigned short)((x.bits & 0x80u) << 8 | magnitude << 7)) * 256.0f;
#endif
}
__device__ __forceinline__ bool value_of(bool_t x) { return x.bits != 0; }

// A float truncated toward zero. A value out of range becomes the smallest integer, as on x86 and in NumPy.
template <class Integer, class Float> __device__ __forceinline__ Integer truncated(Float x) {
    constexpr Float limit = sizeof(Integer) == 8 ? (Float)0x1p63 : (Float)0x1p31;
    return x >= -limit && x < limit ? (Integer)x : (Integer)(1ull << (sizeof(Integer) * 8 - 1));
}

template <class Compute, class Storage> __device__ __forceinline__ Compute widen(Storage x) {
    const auto value = value_of(x);
    typedef decltype(value_of(x)) Value;
    if constexpr (same<Compute, bool>) return value != Value(0);
    else if constexpr (is_floating<Value> && !is_floating<Compute>) return truncated<Compute>(value);
    else return (Compute)value;
}

// ---- arithmetic to memory

// Round to odd: x if it is a float, otherwise the one of the two adjacent floats whose last bit is 1. Its rounding to 16 bits or
// fewer is the correct rounding of x, while rounding to nearest twice may differ.
__device__ __forceinline__ float round_to_odd(float x) { return x; }
__device__ __forceinline__ float round_to_odd(bool x) { return x ? 1.0f : 0.0f; }
__device__ __forceinline__ float round_to_odd(double x) {
#ifdef __CUDA_ARCH__
    const float cut = __double2float_rz(x);
    return x == x && (double)cut != x ? __uint_as_float(__float_as_uint(cut) | 1u) : cut;
#else
    const float near = (float)x;
    if (x != x || (double)near == x) return near;
    const bool beyond = x < 0 ? (double)near < x : (double)near > x;
    return __uint_as_float((__float_as_uint(near) - beyond) | 1u);
#endif
}
__device__ __forceinline__ float round_to_odd(long long x) {
    // The 24 leading bits are kept; the last one is set if any other bit is set.
    const unsigned long long magnitude = x < 0 ? 0ull - (unsigned long long)x : (unsigned long long)x;
    const int cut = 40 - __clzll((long long)magnitude);
    if (cut <= 0) return (float)x;
    const unsigned long long kept = magnitude >> cut << cut;
    const float exact = (float)(kept | (unsigned long long)(kept != magnitude) << cut);
    return x < 0 ? -exact : exact;
}
__device__ __forceinline__ float round_to_odd(int x) {
    const unsigned magnitude = x < 0 ? 0u - (unsigned)x : (unsigned)x;
    const int cut = 8 - __clz((int)magnitude);
    if (cut <= 0) return (float)x;
    const unsigned kept = magnitude >> cut << cut;
    const float exact = (float)(kept | (unsigned)(kept != magnitude) << cut);
    return x < 0 ? -exact : exact;
}

// Sign, EXPONENT and FRACTION bits of x rounded to nearest even, at most `largest` in magnitude; x is not NaN.
template <int EXPONENT, int FRACTION> __device__ __forceinline__ unsigned rounded_bits(float x, unsigned largest) {
    constexpr int bias = (1 << (EXPONENT - 1)) - 1, lowest = 128 - bias;  // float's exponent field of the least normal
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu, sign = __float_as_uint(x) >> 31;
    const int exponent = (int)(magnitude >> 23);
    unsigned whole = magnitude - ((unsigned)(127 - bias) << 23);
    int shift = 23 - FRACTION;
    if (exponent < lowest) {  // below the least normal: the fraction with its leading bit, shifted in place
        whole = exponent == 0 ? magnitude : (magnitude & 0x7fffffu) | 0x800000u;
        shift += lowest - (exponent == 0 ? 1 : exponent);
        if (shift > 25) shift = 25;  // everything is below half of the least subnormal
    }
    const unsigned even = whole >> shift & 1u;
    const unsigned result = (whole + ((1u << (shift - 1)) - 1u) + even) >> shift;
    return sign << (EXPONENT + FRACTION) | (result > largest ? largest : result);
}

__device__ __forceinline__ void narrow_float(float x, half_t& to) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
    to.bits = x != x ? 0x7fffu : rounded_bits<5, 10>(x, 0x7c00u);
#endif
}
__device__ __forceinline__ void narrow_float(float x, bfloat_t& to) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
    to.bits = x != x ? 0x7fffu : rounded_bits<8, 7>(x, 0x7f80u);
#endif
}
__device__ __forceinline__ void narrow_float(float x, e4m3_t& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    to.bits = (unsigned char)pair;
#else
    to.bits = (unsigned char)(x != x ? 0x7fu : rounded_bits<4, 3>(x, 0x7eu));
#endif
}
__device__ __forceinline__ void narrow_float(float x, e5m2_t& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    to.bits = (unsigned char)pair;
#else
    to.bits = (unsigned char)(x != x ? 0x7eu : rounded_bits<5, 2>(x, 0x7bu));
#endif
}

// The integer nearest to x: ties to even, saturating, 0 for NaN. PTX defines 0 for NaN only if neither the float nor the
// integer has 64 bits.
__device__ __forceinline__ int nearest_int(float x) {
#ifdef __CUDA_ARCH__
    return __float2int_rn(x);
#else
    const float whole = rintf(x);
    return x != x ? 0 : whole >= 0x1p31f ? 0x7fffffff : whole < -0x1p31f ? (int)0x80000000u : (int)whole;
#endif
}
__device__ __forceinline__ int nearest_int(double x) {
#ifdef __CUDA_ARCH__
    return x != x ? 0 : __double2int_rn(x);
#else
    const double whole = rint(x);
    return x != x ? 0 : whole >= 0x1p31 ? 0x7fffffff : whole < -0x1p31 ? (int)0x80000000u : (int)whole;
#endif
}
__device__ __forceinline__ long long nearest_long(float x) {
#ifdef __CUDA_ARCH__
    return x != x ? 0 : __float2ll_rn(x);
#else
    const float whole = rintf(x);
    if (x != x) return 0;
    return whole >= 0x1p63f ? 0x7fffffffffffffffll : whole < -0x1p63f ? (long long)(1ull << 63) : (long long)whole;
#endif
}
__device__ __forceinline__ long long nearest_long(double x) {
#ifdef __CUDA_ARCH__
    return x != x ? 0 : __double2ll_rn(x);
#else
    const double whole = rint(x);
    if (x != x) return 0;
    return whole >= 0x1p63 ? 0x7fffffffffffffffll : whole < -0x1p63 ? (long long)(1ull << 63) : (long long)whole;
#endif
}

template <class Integer, class Wide> __device__ __forceinline__ Integer clamped(Wide x) {
    constexpr bool is_signed = (Integer)-1 < (Integer)0;
    constexpr int bits = (int)sizeof(Integer) * 8 - is_signed;
    constexpr Wide largest = (Wide)((1ull << bits) - 1), smallest = is_signed ? -largest - 1 : 0;
    return (Integer)(x > largest ? largest : x < smallest ? smallest : x);
}

template <class Storage, class Compute> __device__ __forceinline__ Storage narrow(Compute x) {
    if constexpr (same<Storage, bool_t>) return bool_t{(unsigned char)(x != Compute(0))};
    else if constexpr (is_floating<Storage>) return (Storage)x;
    else if constexpr (same<Storage, half_t> || same<Storage, bfloat_t> || same<Storage, e4m3_t> ||
                       same<Storage, e5m2_t>) {
        Storage to;
        narrow_float(round_to_odd(x), to);
        return to;
    } else if constexpr (same<Compute, bool>) return (Storage)x;
    else if constexpr (sizeof(Storage) == 8) {
        if constexpr (is_floating<Compute>) return nearest_long(x);
        else return x;
    } else if constexpr (is_floating<Compute>) return clamped<Storage>(nearest_int(x));
    else return clamped<Storage>(x);
}

// ---- vector access

template <class T, int V> struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Vec {
    T data[V];
    __device__ __forceinline__ T& operator[](int i) { return data[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return data[i]; }
};

template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

// V elements in accesses of 16 bytes, or in one of 8, 4, 2 or 1; p is aligned to that many bytes.
template <int V, class T> __device__ __forceinline__ Vec<T, V> load_vec(const T* p) {
    constexpr int bytes = V * (int)sizeof(T), word = bytes < 16 ? bytes : 16;
    static_assert((word & (word - 1)) == 0 && bytes % word == 0, "a vector is a power of two of bytes, or whole 16s");
    typedef typename Word<word>::type Access;
    Vec<T, V> vec;
#pragma unroll
    for (int i = 0; i < bytes / word; ++i) ((Access*)&vec)[i] = ((const Access*)p)[i];
    return vec;
}

// The same through the read-only path (ld.global.nc): p is in global memory that the whole launch only reads.
template <int V, class T> __device__ __forceinline__ Vec<T, V> load_vec_read_only(const T* p) {
    constexpr int bytes = V * (int)sizeof(T), word = bytes < 16 ? bytes : 16;
    static_assert((word & (word - 1)) == 0 && bytes % word == 0, "a vector is a power of two of bytes, or whole 16s");
    typedef typename Word<word>::type Access;
    Vec<T, V> vec;
#pragma unroll
    for (int i = 0; i < bytes / word; ++i) ((Access*)&vec)[i] = __ldg((const Access*)p + i);
    return vec;
}

template <int V, class T> __device__ __forceinline__ void store_vec(T* p, const Vec<T, V>& vec) {
    constexpr int bytes = V * (int)sizeof(T), word = bytes < 16 ? bytes : 16;
    static_assert((word & (word - 1)) == 0 && bytes % word == 0, "a vector is a power of two of bytes, or whole 16s");
    typedef typename Word<word>::type Access;
#pragma unroll
    for (int i = 0; i < bytes / word; ++i) ((Access*)p)[i] = ((const Access*)&vec)[i];
}
