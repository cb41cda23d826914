// Sums of a filter gradient of integers, one for each weight. No product of bytes, and no sum of PROMOTION_INTERVAL stages of them, has
// bits that a float lacks; such a sum and START together have it in their last bits.

constexpr float START = 12582912.0f;  // 1.5 * 2^23: 22 bits and a sign
constexpr int START_BITS = 0x4B400000;
static_assert(PROMOTION_INTERVAL > 0);

struct Sums {
    float sum[GROUPS][ACCUMS];
    int total[GROUPS][ACCUMS];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i) sum[g][i] = 0, total[g][i] = 0;
    }
    __device__ __forceinline__ void pin_all() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g) fence_accumulators(sum[g]);
    }
    __device__ __forceinline__ void multiply_stage(smem_desc_t a, smem_desc_t b, int number) {
        #pragma unroll
        for (int k = 0; k < STAGE_K / 16; ++k)
            #pragma unroll
            for (int i = 0; i < PLANES; ++i)
                #pragma unroll
                for (int j = 0; j < PLANES; ++j)
                    multiply(
                        sum[i + j], plane_of<A_PLANE>(a, i, k), plane_of<B_PLANE>(b, j, k),
                        k == 0 && (i == 0 || j == PLANES - 1) ? number % UNIT : 1
                    );
    }
    __device__ __forceinline__ void promote() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i)
                total[g][i] = wrapping_sum(total[g][i], __float_as_int(sum[g][i] + START) - START_BITS);
    }
    __device__ __forceinline__ Accum result(int i) const { return combine_limbs(total, i); }
};
