// CUDA C++ as plain C++: what kernel text uses of the language, in front of it. Included before the text, inside no
// namespace; the text itself then stands in an unnamed one.
#pragma once
#include "scheduler.h"
#include "tensor_unit.h"

#define GRAPHDNN_EMULATED 1

// ---- the language

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define alignas(n) __attribute__((aligned(n)))  // CUDA takes it after __shared__ too
// Nothing else is thread local, so that this can be poisoned before each block: g++ ignores a section for variables
// of templates. `extern __shared__` is rewritten before compiling.
#define __shared__ static thread_local
#define __builtin_assume(condition)
#define __trap() emulated_stop("__trap()", __LINE__)

typedef __SIZE_TYPE__ size_t;

#define EMULATED_VECTOR(type, name, bytes1, bytes2, bytes4)                                                  \
    struct __align__(bytes1) name##1 { type x; };                                                           \
    struct __align__(bytes2) name##2 { type x, y; };                                                        \
    struct __align__(bytes4) name##4 { type x, y, z, w; };                                                  \
    inline name##1 make_##name##1(type x) { return {x}; }                                                   \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                        \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
EMULATED_VECTOR(signed char, char, 1, 2, 4)
EMULATED_VECTOR(unsigned char, uchar, 1, 2, 4)
EMULATED_VECTOR(short, short, 2, 4, 8)
EMULATED_VECTOR(unsigned short, ushort, 2, 4, 8)
EMULATED_VECTOR(int, int, 4, 8, 16)
EMULATED_VECTOR(unsigned, uint, 4, 8, 16)
EMULATED_VECTOR(long long, longlong, 8, 16, 16)
EMULATED_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
EMULATED_VECTOR(float, float, 4, 8, 16)
EMULATED_VECTOR(double, double, 8, 16, 16)
struct int3 { int x, y, z; };
struct float3 { float x, y, z; };
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define threadIdx emulated_threadIdx
#define blockIdx emulated_blockIdx
#define blockDim emulated_blockDim
#define gridDim emulated_gridDim
constexpr int warpSize = 32;

// ---- barriers

#define __syncthreads() ((void)emulated_block_barrier(EMULATED_NONE, 0, "__syncthreads", __LINE__))
#define __syncthreads_or(predicate) \
    emulated_block_barrier(EMULATED_OR, (predicate) != 0, "__syncthreads_or", __LINE__)
#define __syncthreads_and(predicate) \
    emulated_block_barrier(EMULATED_AND, (predicate) != 0, "__syncthreads_and", __LINE__)
#define __syncthreads_count(predicate) \
    emulated_block_barrier(EMULATED_COUNT, (predicate) != 0, "__syncthreads_count", __LINE__)
#define emulated_bar_sync(id, threads) emulated_named_barrier(id, threads, 1, "bar.sync", __LINE__)
#define emulated_bar_arrive(id, threads) emulated_named_barrier(id, threads, 0, "bar.arrive", __LINE__)
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { emulated_yield(); }

// ---- warps

// For instructions of a whole warp, or of several (mma, wgmma, ldmatrix): `Together` has places for what each thread
// gives and gets, work(places, present) computes it for all, once. All threads of the warp (or warps) must call.
#define emulated_together(threads, mine, work) emulated_meet(threads, ~0u, mine, work, "emulated_together", __LINE__)

inline void emulated_nothing(void**, unsigned) {}
inline void emulated_syncwarp(int line, unsigned mask = ~0u) {
    int mine;
    emulated_meet(32, mask, &mine, emulated_nothing, "__syncwarp", line);
}
#define __syncwarp(...) emulated_syncwarp(__LINE__ __VA_OPT__(,) __VA_ARGS__)

template <class T> struct EmulatedShuffle { T value, result; int source; };
// A lane that is not there gives what nobody should use: all bits set.
template <class T> void emulated_exchange(void** places, unsigned) {
    for (int lane = 0; lane < 32; ++lane) {
        if (!places[lane]) continue;
        auto& mine = *(EmulatedShuffle<T>*)places[lane];
        if (places[mine.source]) mine.result = ((EmulatedShuffle<T>*)places[mine.source])->value;
        else __builtin_memset(&mine.result, 0xff, sizeof(T));
    }
}
inline int emulated_lane() {
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}
enum EmulatedDirection { EMULATED_TO, EMULATED_UP, EMULATED_DOWN, EMULATED_XOR };
template <class T>
T emulated_shuffle(EmulatedDirection direction, int line, unsigned mask, T value, int by, int width = 32) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 32 or 64 bits");
    const int lane = emulated_lane(), first = lane / width * width;
    int source = direction == EMULATED_UP     ? lane - by
                 : direction == EMULATED_DOWN ? lane + by
                 : direction == EMULATED_XOR  ? lane ^ by
                                              : first + (by & (width - 1));
    if (source < (direction == EMULATED_XOR ? 0 : first) || source >= first + width) source = lane;
    EmulatedShuffle<T> mine{value, value, source};
    emulated_meet(32, mask, &mine, emulated_exchange<T>, "a shuffle", line);
    return mine.result;
}
#define __shfl_sync(...) emulated_shuffle(EMULATED_TO, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated_shuffle(EMULATED_UP, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulated_shuffle(EMULATED_DOWN, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated_shuffle(EMULATED_XOR, __LINE__, __VA_ARGS__)

struct EmulatedBallot { unsigned predicate, votes, voters; };
inline void emulated_count_votes(void** places, unsigned present) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (places[lane] && ((EmulatedBallot*)places[lane])->predicate) votes |= 1u << lane;
    for (int lane = 0; lane < 32; ++lane)
        if (places[lane]) *(EmulatedBallot*)places[lane] = {0, votes, present};
}
inline EmulatedBallot emulated_ballot(int line, unsigned mask, int predicate) {
    EmulatedBallot mine{predicate != 0, 0, 0};
    emulated_meet(32, mask, &mine, emulated_count_votes, "a vote", line);
    return mine;
}
inline int emulated_all(EmulatedBallot ballot) { return ballot.votes == ballot.voters; }
#define __ballot_sync(mask, predicate) (emulated_ballot(__LINE__, mask, (predicate) != 0).votes)
#define __any_sync(mask, predicate) ((int)(emulated_ballot(__LINE__, mask, (predicate) != 0).votes != 0))
#define __all_sync(mask, predicate) emulated_all(emulated_ballot(__LINE__, mask, (predicate) != 0))
inline unsigned __activemask() { return emulated_lanes_present(); }

template <class T> struct EmulatedReduction { T value; };
template <class T, class Operation> void emulated_fold(void** places, unsigned) {
    T total{};
    bool begun = false;
    for (int lane = 0; lane < 32; ++lane) {
        if (!places[lane]) continue;
        const T value = *(T*)places[lane];
        total = begun ? Operation::of(total, value) : value;
        begun = true;
    }
    for (int lane = 0; lane < 32; ++lane)
        if (places[lane]) *(T*)places[lane] = total;
}
#define EMULATED_REDUCTION(name, expression)                                                       \
    struct Emulated_##name { template <class T> static T of(T a, T b) { return expression; } };   \
    template <class T> T emulated_reduce_##name(int line, unsigned mask, T value) {                \
        emulated_meet(32, mask, &value, emulated_fold<T, Emulated_##name>, "a reduction", line);  \
        return value;                                                                              \
    }
EMULATED_REDUCTION(add, (T)((unsigned)a + (unsigned)b))
EMULATED_REDUCTION(min, a < b ? a : b)
EMULATED_REDUCTION(max, a > b ? a : b)
EMULATED_REDUCTION(and, a & b)
EMULATED_REDUCTION(or, a | b)
#define __reduce_add_sync(mask, value) emulated_reduce_add(__LINE__, mask, value)
#define __reduce_min_sync(mask, value) emulated_reduce_min(__LINE__, mask, value)
#define __reduce_max_sync(mask, value) emulated_reduce_max(__LINE__, mask, value)
#define __reduce_and_sync(mask, value) emulated_reduce_and(__LINE__, mask, value)
#define __reduce_or_sync(mask, value) emulated_reduce_or(__LINE__, mask, value)

// ---- atomics: one thread runs at a time, and they race with nobody (shared_accesses.cpp)

#define EMULATED_ALONE __attribute__((no_sanitize("thread")))
#define EMULATED_ATOMIC(name, type, expression) \
    EMULATED_ALONE inline type name(type* at, type value) { const type old = *at; *at = (type)(expression); return old; }
#define EMULATED_ATOMICS(type)                                     \
    EMULATED_ATOMIC(atomicAdd, type, old + value)                  \
    EMULATED_ATOMIC(atomicExch, type, value)
EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)
EMULATED_ATOMICS(float)
EMULATED_ATOMIC(atomicAdd, double, old + value)
#define EMULATED_INTEGER_ATOMICS(type)                             \
    EMULATED_ATOMIC(atomicMax, type, value > old ? value : old)    \
    EMULATED_ATOMIC(atomicMin, type, value < old ? value : old)    \
    EMULATED_ATOMIC(atomicAnd, type, old & value)                  \
    EMULATED_ATOMIC(atomicOr, type, old | value)                   \
    EMULATED_ATOMIC(atomicXor, type, old ^ value)
EMULATED_INTEGER_ATOMICS(int)
EMULATED_INTEGER_ATOMICS(unsigned)
EMULATED_INTEGER_ATOMICS(long long)
EMULATED_INTEGER_ATOMICS(unsigned long long)
EMULATED_ATOMIC(atomicSub, int, old - value)
EMULATED_ATOMIC(atomicSub, unsigned, old - value)
EMULATED_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMULATED_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#define EMULATED_CAS(type)                                              \
    EMULATED_ALONE inline type atomicCAS(type* at, type compare, type value) {         \
        const type old = *at;                                           \
        if (old == compare) *at = value;                                \
        return old;                                                     \
    }
EMULATED_CAS(int)
EMULATED_CAS(unsigned)
EMULATED_CAS(unsigned short)
EMULATED_CAS(unsigned long long)

template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldcv(const T* p) { return *(const volatile T*)p; }
template <class T> inline void __stwb(T* p, T value) { *p = value; }
template <class T> inline void __stcg(T* p, T value) { *p = value; }
template <class T> inline void __stcs(T* p, T value) { *p = value; }

// ---- compute capability 9.0: the rest is in tensor_unit.h

inline size_t __cvta_generic_to_shared(const void* p) { return emulated_shared_address(p); }
template <class T, int COUNT>
inline void emulated_multiply(
    T (&sum)[COUNT], unsigned long long a, unsigned long long b, const char* kind_a, const char* kind_b, bool across_a,
    bool across_b, bool add
) {
    emulated_warpgroup_product(sum, a, b, 2 * COUNT, kind_a, kind_b, across_a, across_b, add);
}
template <class T, int COUNT>
inline void emulated_multiply(
    T (&sum)[COUNT], const unsigned (&a)[4], unsigned long long b, const char* kind_a, const char* kind_b, bool across_b, bool add
) {
    emulated_warpgroup_product_of_registers(sum, a, b, 2 * COUNT, kind_a, kind_b, across_b, add);
}

// ---- bits and integers

template <class To, class From> inline To emulated_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    __builtin_memcpy(&to, &x, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emulated_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255u) * (b >> i & 255u);
    return c;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned choice = selector >> 4 * i & 15u, byte = (unsigned)(both >> 8 * (choice & 7u)) & 255u;
        result |= (choice & 8u ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
    }
    return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (by & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31u));
}

// ---- mathematics

extern "C" {
#define EMULATED_UNARY(name) double name(double) noexcept; float name##f(float) noexcept;
#define EMULATED_BINARY(name) double name(double, double) noexcept; float name##f(float, float) noexcept;
#define EMULATED_FUNCTIONS(unary, binary)                                                                       \
    unary(exp) unary(exp2) unary(expm1) unary(log) unary(log2) unary(log10) unary(log1p) unary(sqrt)            \
    unary(cbrt) unary(sin) unary(cos) unary(tan) unary(asin) unary(acos) unary(atan) unary(sinh) unary(cosh)    \
    unary(tanh) unary(asinh) unary(acosh) unary(atanh) unary(erf) unary(erfc) unary(lgamma) unary(tgamma)       \
    unary(floor) unary(ceil) unary(trunc) unary(round) unary(rint) unary(nearbyint) unary(fabs) unary(logb)     \
    binary(pow) binary(fmod) binary(remainder) binary(atan2) binary(hypot) binary(fmax) binary(fmin)            \
    binary(fdim) binary(copysign) binary(nextafter)
EMULATED_FUNCTIONS(EMULATED_UNARY, EMULATED_BINARY)
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double scalbn(double, int) noexcept;
float scalbnf(float, int) noexcept;
double frexp(double, int*) noexcept;
float frexpf(float, int*) noexcept;
double modf(double, double*) noexcept;
float modff(float, float*) noexcept;
long long llrint(double) noexcept;
long long llrintf(float) noexcept;
void sincosf(float, float*, float*) noexcept;
void sincos(double, double*, double*) noexcept;
int printf(const char*, ...);
void* memcpy(void*, const void*, size_t) noexcept;
void* memset(void*, int, size_t) noexcept;
}
#define EMULATED_UNARY_FLOAT(name) inline float name(float x) { return name##f(x); }
#define EMULATED_BINARY_FLOAT(name) inline float name(float x, float y) { return name##f(x, y); }
EMULATED_FUNCTIONS(EMULATED_UNARY_FLOAT, EMULATED_BINARY_FLOAT)
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline float ldexp(float x, int e) { return ldexpf(x, e); }
inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float exp10f(float x) { return (float)pow(10.0, (double)x); }
inline double exp10(double x) { return pow(10.0, x); }
inline float normcdff(float x) { return (float)(0.5 * erfc(-0.70710678118654752440 * (double)x)); }
inline double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
inline bool isnan(float x) { return x != x; }
inline bool isnan(double x) { return x != x; }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }

inline int abs(int x) { return x < 0 ? -x : x; }
inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline long long llabs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
#define EMULATED_EXTREMA(type)                                  \
    inline type min(type a, type b) { return b < a ? b : a; }   \
    inline type max(type a, type b) { return a < b ? b : a; }
EMULATED_EXTREMA(int)
EMULATED_EXTREMA(unsigned)
EMULATED_EXTREMA(long)
EMULATED_EXTREMA(unsigned long)
EMULATED_EXTREMA(long long)
EMULATED_EXTREMA(unsigned long long)
#undef EMULATED_EXTREMA
#define EMULATED_MIXED_EXTREMA(a_type, b_type, type)                               \
    inline type min(a_type a, b_type b) { return min((type)a, (type)b); }          \
    inline type max(a_type a, b_type b) { return max((type)a, (type)b); }
EMULATED_MIXED_EXTREMA(int, unsigned, unsigned)
EMULATED_MIXED_EXTREMA(unsigned, int, unsigned)
EMULATED_MIXED_EXTREMA(long long, unsigned long long, unsigned long long)
EMULATED_MIXED_EXTREMA(unsigned long long, long long, unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
EMULATED_MIXED_EXTREMA(float, double, double)
EMULATED_MIXED_EXTREMA(double, float, double)

inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline double __int2double_rn(int x) { return x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline float __double2float_rn(double x) { return (float)x; }

// Conversions saturate; NaN gives 0, in 64 bits or from a double the lowest integer.
template <class Integer, class Float> Integer emulated_integer(Float whole) {
    const int bits = (int)sizeof(Integer) * 8;
    const Integer lowest = (Integer)(1ull << (bits - 1));
    if (whole != whole) return bits == 64 || sizeof(Float) == 8 ? lowest : 0;
    const Float limit = __builtin_scalbn(1.0, bits - 1);
    return whole >= limit ? (Integer)~lowest : whole < -limit ? lowest : (Integer)whole;
}
#define EMULATED_CONVERSIONS(from, type)                                                                            \
    inline int __##from##2int_rn(type x) { return emulated_integer<int>(rint(x)); }                                 \
    inline int __##from##2int_rz(type x) { return emulated_integer<int>(trunc(x)); }                                \
    inline int __##from##2int_rd(type x) { return emulated_integer<int>(floor(x)); }                                \
    inline int __##from##2int_ru(type x) { return emulated_integer<int>(ceil(x)); }                                 \
    inline long long __##from##2ll_rn(type x) { return emulated_integer<long long>(rint(x)); }                      \
    inline long long __##from##2ll_rz(type x) { return emulated_integer<long long>(trunc(x)); }
EMULATED_CONVERSIONS(float, float)
EMULATED_CONVERSIONS(double, double)

// ---- entries

template <class P> constexpr size_t emulated_size(void (*)(P)) { return sizeof(P); }
template <class P> void emulated_call(void (*kernel)(P), const void* params) { kernel(*(const P*)params); }
#define EMULATED_ENTRY(name)                                                                                  \
    extern "C" size_t emulated_size_##name(void) { return emulated_size(name); }                              \
    extern "C" void emulated_run_##name(const void* params) { emulated_call(name, params); }

// The calling host thread's copy of fixed shared memory exists once one of its variables is asked for.
#define EMULATED_FIXED_SHARED                                                                                 \
    static thread_local unsigned char emulated_some_shared;                                                   \
    extern "C" void* emulated_fixed_shared(void) { return &emulated_some_shared; }
