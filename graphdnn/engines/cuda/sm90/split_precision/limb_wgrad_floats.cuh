// Sums of a filter gradient of floats: the product of the first planes and those of the others apart. With PROMOTION_INTERVAL they are
// joined after so many stages and added in float.

struct Sums {
    float sum[2][ACCUMS], total[PROMOTION_INTERVAL > 0 ? ACCUMS : 1];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) sum[0][i] = sum[1][i] = 0;
        #pragma unroll
        for (int i = 0; i < (PROMOTION_INTERVAL > 0 ? ACCUMS : 1); ++i) total[i] = 0;
    }
    __device__ __forceinline__ void pin_all() { fence_accumulators(sum[0]), fence_accumulators(sum[1]); }

    // A stage's products, the smallest first.
    __device__ __forceinline__ void multiply_stage(smem_desc_t a, smem_desc_t b, int number) {
        const int unpromoted = PROMOTION_INTERVAL > 0 ? number % UNIT : 1;
        #pragma unroll
        for (int k = 0; k < STAGE_K / 16; ++k)
            #pragma unroll
            for (int weight = PLANES - 1; weight >= 0; --weight)
                #pragma unroll
                for (int i = 0; i <= weight; ++i)
                    multiply(
                        sum[weight == 0], plane_of<A_PLANE>(a, i, k), plane_of<B_PLANE>(b, weight - i, k),
                        k == 0 && i == 0 && (weight == 0 || weight == PLANES - 1) ? unpromoted : 1
                    );
    }
    __device__ __forceinline__ void promote() {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) total[i] += combine_limbs(i);
    }
    __device__ __forceinline__ float result(int i) const {
        if constexpr (PROMOTION_INTERVAL > 0) return total[i];
        else return combine_limbs(i);
    }

private:
    // Parts of an infinity are infinity, NaN and NaN: what they add to the small sums is not wanted.
    __device__ __forceinline__ float combine_limbs(int i) const {
        const float all = sum[1][i] + sum[0][i];
        return fabsf(all) < INFINITY ? all : sum[1][i];
    }
};
