// The warp's 16x8 product, 32 bytes deep: 16 elements of 16 bits or 8 of TF32 with fp32 sums, or 32 bytes with exact int32
// sums.
//
// Lane 4 * g + j holds, as four bytes along k: A rows g and g + 8 at byte 4j, and again at byte 16 + 4j; B column g at the
// same bytes; of the sums rows g and g + 8, columns 2j and 2j + 1.

#ifndef __CUDA_ARCH__
template <class A, class B, class Sum> struct EmulatedProduct {
    const Sum* sum;
    Sum result[4];
    unsigned int a[4], b[2];
};

template <class T> inline T emulated_element_of(unsigned int word, int which) {
    T element;
    __builtin_memcpy(&element, (const char*)&word + which * sizeof(T), sizeof(T));
    return element;
}

template <class A, class B, class Sum> inline void emulated_product_of(void** places, unsigned) {
    constexpr int EACH = 4 / (int)sizeof(A);
    const auto of = [&](int lane) -> EmulatedProduct<A, B, Sum>& { return *(EmulatedProduct<A, B, Sum>*)places[lane]; };
    for (int lane = 0; lane < 32; ++lane)
        for (int e = 0; e < 4; ++e) {
            const int row = lane / 4, column = lane % 4 * 2 + e % 2;
            Sum sum = of(lane).sum[e];
            for (int k = 0; k < 8 * EACH; ++k) {
                const int word = k / EACH;  // four are the first 16 bytes
                const auto &a = of(row * 4 + word % 4), &b = of(column * 4 + word % 4);
                multiply_add(sum, (Sum)value_of(emulated_element_of<A>(a.a[word / 4 * 2 + e / 2], k % EACH)),
                             (Sum)value_of(emulated_element_of<B>(b.b[word / 4], k % EACH)));
            }
            of(lane).result[e] = sum;
        }
}
#endif

// What the tensor cores would only cut off: 13 bits of a float, rounded to nearest, halves away from zero.
__device__ __forceinline__ unsigned int rounded_to_tf32(unsigned int bits) {
#ifdef __CUDA_ARCH__
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
    return bits;
#else
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#endif
}

#define GRAPHDNN_MMA(shape, types, constraint)                                                                             \
    asm("mma.sync.aligned." shape ".row.col." types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"               \
        : "+" constraint(sum[0]), "+" constraint(sum[1]), "+" constraint(sum[2]), "+" constraint(sum[3])                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

template <class A, class B, class Sum>
__device__ __forceinline__ void multiply_warp(Sum (&sum)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    static_assert(sizeof(A) == sizeof(B), "elements of one size");
#ifdef __CUDA_ARCH__
    if constexpr (same<A, half_t>) GRAPHDNN_MMA("m16n8k16", "f32.f16.f16.f32", "f");
    else if constexpr (same<A, bfloat_t>) GRAPHDNN_MMA("m16n8k16", "f32.bf16.bf16.f32", "f");
    else if constexpr (same<A, float>) GRAPHDNN_MMA("m16n8k8", "f32.tf32.tf32.f32", "f");
    else if constexpr (same<A, int8_t> && same<B, int8_t>) GRAPHDNN_MMA("m16n8k32", "s32.s8.s8.s32", "r");
    else if constexpr (same<A, int8_t>) GRAPHDNN_MMA("m16n8k32", "s32.s8.u8.s32", "r");
    else if constexpr (same<B, int8_t>) GRAPHDNN_MMA("m16n8k32", "s32.u8.s8.s32", "r");
    else GRAPHDNN_MMA("m16n8k32", "s32.u8.u8.s32", "r");
#else
    EmulatedProduct<A, B, Sum> mine{sum, {}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulated_together(32, &mine, (emulated_product_of<A, B, Sum>));
    for (int e = 0; e < 4; ++e) sum[e] = mine.result[e];
#endif
}
