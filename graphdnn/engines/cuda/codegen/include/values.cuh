// Loads, stores and tests of elements in the generated functions.
//
// Inputs are loaded through the read-only path. A plan refuses outputs that share memory with inputs, so the compiler may move
// loads above stores and have several loads in flight.

// The layout of an operand along the vector axis.
struct Broadcast {};                  // one element for the whole vector
struct Packed {};                     // contiguous elements, in aligned rows
struct Strided { long long step; };   // elements with a stride

template <int V, class T> __device__ __forceinline__ void load(const T* from, Broadcast, T (&to)[V]) {
    const T one = load_vec_read_only<1>(from).data[0];
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = one;
}

template <int V, class T> __device__ __forceinline__ void load(const T* from, Packed, T (&to)[V]) {
    const Vec<T, V> vec = load_vec_read_only<V>(from);
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = vec.data[e];
}

template <int V, class T> __device__ __forceinline__ void load(const T* from, Strided by, T (&to)[V]) {
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = load_vec_read_only<1>(from + e * by.step).data[0];
}

// Coordinates of V elements in row-major order from `coord` on; they may cross the end of the last axes.
template <int V, int R>
__device__ __forceinline__ void spread(const int (&coord)[R], const long long (&size)[R], int (&each)[V][R]) {
    #pragma unroll
    for (int e = 0; e < V; ++e) {
        #pragma unroll
        for (int j = 0; j < R; ++j) each[e][j] = e == 0 ? coord[j] : each[e - 1][j];
        bool carry = e > 0;
        #pragma unroll
        for (int j = R - 1; j >= 0; --j) {
            each[e][j] += carry;
            carry = j > 0 && each[e][j] == (int)size[j];
            if (carry) each[e][j] = 0;
        }
    }
}

// Convert floats or integers to signed bytes as `narrow` does, with rounding and saturation, by instructions that pack two bytes.
__device__ __forceinline__ int nearest_int(int x) { return x; }
template <class Byte, class Wide, int V> __device__ __forceinline__ void narrow_bytes(const Wide (&x)[V], Byte (&to)[V]) {
    static_assert(V % 4 == 0 && same<Byte, int8_t>, "whole words of signed bytes");
    #pragma unroll
    for (int first = 0; first < V; first += 4) {
#ifdef __CUDA_ARCH__
        int rounded[4];
        unsigned int word;
        #pragma unroll
        for (int e = 0; e < 4; ++e) rounded[e] = nearest_int(x[first + e]);
        asm("{\n.reg .b32 high;\ncvt.pack.sat.s8.s32.b32 high, %4, %3, 0;\ncvt.pack.sat.s8.s32.b32 %0, %2, %1, high;\n}"
            : "=r"(word) : "r"(rounded[0]), "r"(rounded[1]), "r"(rounded[2]), "r"(rounded[3]));
        #pragma unroll
        for (int e = 0; e < 4; ++e) to[first + e] = (Byte)(word >> 8 * e);
#else
        for (int e = first; e < first + 4; ++e) to[e] = narrow<Byte>(x[e]);
#endif
    }
}

template <int V, class T> __device__ __forceinline__ void store(T* to, Packed, const T (&from)[V]) {
    Vec<T, V> vec;
    #pragma unroll
    for (int e = 0; e < V; ++e) vec.data[e] = from[e];
    store_vec<V>(to, vec);
}

template <int V, class T> __device__ __forceinline__ void store(T* to, Strided by, const T (&from)[V]) {
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e * by.step] = from[e];
}

template <int V, class T> __device__ __forceinline__ void store(T* to, Broadcast, const T (&from)[V]) {
    *to = from[0];  // every axis with a stride of 0 has one element
}

// Store where `valid` holds. Vector stores are predicated instead of branched around, so that the compiler can schedule the
// computations of several stores together.
template <int V, class T, class How>
__device__ __forceinline__ void store_if(bool valid, T* to, How how, const T (&from)[V]) {
    if (valid) store<V>(to, how, from);
}
template <int V, class T> __device__ __forceinline__ void store_if(bool valid, T* to, Packed how, const T (&from)[V]) {
#ifdef __CUDA_ARCH__
    constexpr int BYTES = V * (int)sizeof(T);
    Vec<T, V> vec;
    #pragma unroll
    for (int e = 0; e < V; ++e) vec.data[e] = from[e];
    if constexpr (BYTES == 16) {
        const uint4 w = *(const uint4*)&vec;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.b32 [%4], {%0, %1, %2, %3}; }"
                     ::"r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "l"(to), "r"((int)valid) : "memory");
    } else if constexpr (BYTES == 8) {
        const uint2 w = *(const uint2*)&vec;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p st.global.v2.b32 [%2], {%0, %1}; }"
                     ::"r"(w.x), "r"(w.y), "l"(to), "r"((int)valid) : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.b32 [%1], %0; }"
                     ::"r"(*(const unsigned int*)&vec), "l"(to), "r"((int)valid) : "memory");
    } else
#endif
    if (valid) store<V>(to, how, from);
}

// The value of a by-value tensor from the low bytes of a parameter word.
template <class T> __device__ __forceinline__ T from_bits(unsigned long long word) {
    union { unsigned long long word; T value; } both;
    both.word = word;
    return both.value;
}

// Prefetch the cache line of an address into L2.
__device__ __forceinline__ void prefetch_l2_line(const void* address) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// Packed booleans: element i is bit i % 8 of byte i / 8.
__device__ __forceinline__ bool_t load_bit(const unsigned char* from, long long i) {
    bool_t value;
    value.bits = (from[i >> 3] >> (i & 7)) & 1;
    return value;
}

__device__ __forceinline__ void store_bit(unsigned char* to, long long i, bool_t value) {
    // Other threads own the other bits of the byte, so one bit of the aligned word is changed atomically.
    const unsigned long long address = (unsigned long long)(to + (i >> 3));
    unsigned int* word = (unsigned int*)(address & ~3ull);
    const unsigned int bit = 1u << ((address & 3) * 8 + (i & 7));
    if (value.bits) atomicOr(word, bit);
    else atomicAnd(word, ~bit);
}

// V bits from bit i on, a multiple of V.
template <int V> __device__ __forceinline__ void load_bits(const unsigned char* from, long long i, bool_t (&to)[V]) {
    #pragma unroll
    for (int start = 0; start < V; start += 8) {
        const unsigned int byte = from[(i + start) >> 3] >> (i & 7);
        #pragma unroll
        for (int e = start; e < V && e < start + 8; ++e) to[e].bits = (byte >> (e - start)) & 1;
    }
}

template <int V> __device__ __forceinline__ void store_bits(unsigned char* to, long long i, const bool_t (&from)[V]) {
    #pragma unroll
    for (int start = 0; start < V; start += 8) {
        unsigned int byte = 0;
        #pragma unroll
        for (int e = 0; e < 8; ++e) byte |= (unsigned int)(from[start + e].bits & 1) << e;
        to[(i + start) >> 3] = (unsigned char)byte;
    }
}

// Every number except 0 is true, also NaN.
template <class T> __device__ __forceinline__ bool is_true(T value) { return widen<float>(value) != 0.0f; }
template <> __device__ __forceinline__ bool is_true<double>(double value) { return value != 0.0; }
template <> __device__ __forceinline__ bool is_true<int64_t>(int64_t value) { return value != 0; }
template <> __device__ __forceinline__ bool is_true<bool_t>(bool_t value) { return value.bits != 0; }
