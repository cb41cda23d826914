// ldmatrix_x4 loads four 8x8 matrices of 16-bit elements from shared memory, for a warp.
//
// Lane 8 * i + r gives where in `memory` row r of matrix i is: 16 bytes. Lane 4 * g + j gets, of each, elements 2j and 2j + 1 of
// row g, or, TRANSPOSED, column g of rows 2j and 2j + 1.

#ifndef __CUDA_ARCH__
struct EmulatedRows {
    const unsigned short* row;
    unsigned int result[4];
};

template <bool TRANSPOSED> inline void emulated_rows(void** places, unsigned) {
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            const auto element = [&](int row, int column) -> unsigned int {
                return ((EmulatedRows*)places[8 * i + row])->row[column];
            };
            const int g = lane / 4, pair = lane % 4 * 2;
            ((EmulatedRows*)places[lane])->result[i] = TRANSPOSED ? element(pair, g) | element(pair + 1, g) << 16
                                                                  : element(g, pair) | element(g, pair + 1) << 16;
        }
}
#endif

template <bool TRANSPOSED> __device__ __forceinline__ void ldmatrix_x4(unsigned int (&to)[4], const unsigned char* memory, int at) {
#ifdef __CUDA_ARCH__
    const unsigned int from = (unsigned int)__cvta_generic_to_shared(memory) + (unsigned int)at;
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
#else
    EmulatedRows mine{(const unsigned short*)(memory + at), {}};
    emulated_together(32, &mine, emulated_rows<TRANSPOSED>);
    for (int i = 0; i < 4; ++i) to[i] = mine.result[i];
#endif
}
