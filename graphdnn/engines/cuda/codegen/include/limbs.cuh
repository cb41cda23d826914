// Splitting numbers into limbs: an integer has its bytes, the lowest first; a float has three bfloat16 numbers, the largest
// first.

// Splits two floats; x has the low halves of the words. The first limb is truncated, so that no finite number becomes
// infinite. An infinity or NaN keeps its value in the first limb and leaves NaN in the others. The third limb is exact.
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
        const float remainder = v[i] - __uint_as_float(cut << 16);
        bfloat_t near;
        narrow_float(remainder, near);
        const float last = remainder - value_of(near);
        first |= cut << 16 * i;
        second |= (unsigned int)near.bits << 16 * i;
        third |= __float_as_uint(last) >> 16 << 16 * i;
    }
#endif
}

// The channel, among 16 contiguous ones, at K coordinate `k` of the MMA.
template <class T> __device__ __forceinline__ constexpr int channel_at(int k) {
    if constexpr (sizeof(T) == 1) return k;
    else if constexpr (sizeof(T) == 2) return k / 4 * 2 + k % 2 + k % 4 / 2 * 8;
    else if constexpr (same<T, float>) return k / 8 * 8 + k % 2 * 4 + k % 8 / 2;
    else return k % 4 * 4 + k / 4;
}
