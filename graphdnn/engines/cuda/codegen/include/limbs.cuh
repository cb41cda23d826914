// Numbers in planes: bytes of integers, the lowest first; three 16-bit floats of a float, the largest first.

// Two floats, x in the low halves. The first part is cut off, so that no number becomes infinite; an infinity or NaN stays
// what it is there, and leaves NaN in the others. The last part is exact.
__device__ __forceinline__ void split_pair(float x, float y, unsigned int& first, unsigned int& second, unsigned int& third) {
#ifdef __CUDA_ARCH__
    asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(first) : "f"(y), "f"(x));
    const float x1 = x - __uint_as_float(first << 16), y1 = y - __uint_as_float(first & 0xffff0000u);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(second) : "f"(y1), "f"(x1));
    const float x2 = x1 - __uint_as_float(second << 16), y2 = y1 - __uint_as_float(second & 0xffff0000u);
    third = __byte_perm(__float_as_uint(x2), __float_as_uint(y2), 0x7632);
#else
    const float v[2] = {x, y};
    first = second = third = 0;
    for (int i = 0; i < 2; ++i) {
        const unsigned int cut = v[i] != v[i] ? 0x7fffu : __float_as_uint(v[i]) >> 16;
        const float rest = v[i] - __uint_as_float(cut << 16);
        bfloat_t near;
        narrow_float(rest, near);
        const float last = rest - value_of(near);
        first |= cut << 16 * i;
        second |= (unsigned int)near.bits << 16 * i;
        third |= __float_as_uint(last) >> 16 << 16 * i;
    }
#endif
}

// The channel, of 16 that follow each other, at place `at` of k.
template <class T> __device__ __forceinline__ constexpr int channel_at(int at) {
    if constexpr (sizeof(T) == 1) return at;
    else if constexpr (sizeof(T) == 2) return at / 4 * 2 + at % 2 + at % 4 / 2 * 8;
    else if constexpr (same<T, float>) return at / 8 * 8 + at % 2 * 4 + at % 8 / 2;
    else return at % 4 * 4 + at / 4;
}
