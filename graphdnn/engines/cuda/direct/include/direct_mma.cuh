// mma.sync of 16-bit floats with fp32 accumulators: m16n8k16 or m16n8k8, and ldmatrix.trans.
//
// Lane 4 * g + j holds pairs along k: A rows g and g + 8 at k = 2j, and for m16n8k16 also at k = 8 + 2j; B column g at
// the same k; accumulators of rows g and g + 8, columns 2j and 2j + 1.

#ifndef __CUDA_ARCH__
struct EmulatedMma {
    const float* accum;
    float result[4];
    unsigned int a[4], b[2];
    bool is_half;
};

inline float emulated_element(const EmulatedMma& operands_of, unsigned int pair, int which) {
    const unsigned short bits = (unsigned short)(pair >> 16 * which);
    return operands_of.is_half ? value_of(half_t{bits}) : value_of(bfloat_t{bits});
}

inline void emulated_product(void** requests, unsigned) {
    const auto operands_of = [&](int lane) -> EmulatedMma& { return *(EmulatedMma*)requests[lane]; };
    for (int lane = 0; lane < 32; ++lane)
        for (int e = 0; e < 4; ++e) {
            const int row = lane / 4, column = lane % 4 * 2 + e % 2;
            float accum = operands_of(lane).accum[e];
            for (int k = 0; k < 16; ++k) {
                const EmulatedMma &a = operands_of(row * 4 + k % 8 / 2), &b = operands_of(column * 4 + k % 8 / 2);
                accum += emulated_element(a, a.a[k / 8 * 2 + e / 2], k % 2) * emulated_element(b, b.b[k / 8], k % 2);
            }
            operands_of(lane).result[e] = accum;
        }
}
#endif

#ifndef __CUDA_ARCH__
struct MatrixRows {
    const unsigned short* row;
    unsigned int result[4];
};

inline void emulated_matrices(void** requests, unsigned) {
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            const auto at = [&](int row) -> unsigned int {
                return ((MatrixRows*)requests[8 * i + row])->row[lane / 4];
            };
            ((MatrixRows*)requests[lane])->result[i] = at(lane % 4 * 2) | at(lane % 4 * 2 + 1) << 16;
        }
}
#endif

// Loads four transposed 8x8 matrices of 16-bit elements (ldmatrix.x4.trans). Lane 8 * i + r passes the address of row r
// of matrix i, 16 bytes. Lane 4 * g + j receives column g of rows 2j and 2j + 1 of each matrix.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned int (&to)[4], const void* row) {
#ifdef __CUDA_ARCH__
    const unsigned int from = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
#else
    MatrixRows request{(const unsigned short*)row, {}};
    emulated_together(32, &request, emulated_matrices);
    for (int i = 0; i < 4; ++i) to[i] = request.result[i];
#endif
}

template <class T, bool IS_K16>
__device__ __forceinline__ void mma_sync(
    float (&accum)[4], unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3, unsigned int b0, unsigned int b1
) {
#ifdef __CUDA_ARCH__
    if constexpr (IS_K16 && same<T, half_t>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(accum[0]), "+f"(accum[1]), "+f"(accum[2]), "+f"(accum[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else if constexpr (IS_K16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(accum[0]), "+f"(accum[1]), "+f"(accum[2]), "+f"(accum[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else if constexpr (same<T, half_t>)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(accum[0]), "+f"(accum[1]), "+f"(accum[2]), "+f"(accum[3])
            : "r"(a0), "r"(a1), "r"(b0));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(accum[0]), "+f"(accum[1]), "+f"(accum[2]), "+f"(accum[3])
            : "r"(a0), "r"(a1), "r"(b0));
#else
    EmulatedMma request{accum, {}, {a0, a1, IS_K16 ? a2 : 0u, IS_K16 ? a3 : 0u}, {b0, IS_K16 ? b1 : 0u}, same<T, half_t>};
    emulated_together(32, &request, emulated_product);
    for (int e = 0; e < 4; ++e) accum[e] = request.result[e];
#endif
}
