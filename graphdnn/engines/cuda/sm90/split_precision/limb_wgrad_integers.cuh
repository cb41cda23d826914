// Accumulators of integer filter gradients, one set for each limb order. Products of bytes, and their sums over
// PROMOTION_INTERVAL stages, are exact in fp32. Adding INTEGER_BIAS moves such a sum into the low bits of the float, where
// promotion reads it as an integer.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "limb_wgrad_stage.cuh"

constexpr float INTEGER_BIAS = 12582912.0f;  // 1.5 * 2^23: 22 bits and a sign
constexpr int INTEGER_BIAS_BITS = 0x4B400000;
static_assert(PROMOTION_INTERVAL > 0);

struct LimbAccumulators {
    float accum[LIMB_ORDERS][ACCUMS];
    int promoted[LIMB_ORDERS][ACCUMS];

    __device__ __forceinline__ void clear() {
        #pragma unroll
        for (int order = 0; order < LIMB_ORDERS; ++order)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i) accum[order][i] = 0, promoted[order][i] = 0;
    }
    __device__ __forceinline__ void fence() {
        #pragma unroll
        for (int order = 0; order < LIMB_ORDERS; ++order) fence_accumulators(accum[order]);
    }
    // Multiplies a stage. `k_tile` counts from the beginning of the work item.
    __device__ __forceinline__ void multiply_stage(smem_desc_t a, smem_desc_t b, int k_tile) {
        #pragma unroll
        for (int k = 0; k < STAGE_K / 16; ++k)
            #pragma unroll
            for (int i = 0; i < LIMBS; ++i)
                #pragma unroll
                for (int j = 0; j < LIMBS; ++j)
                    wgmma_ss(
                        accum[i + j], limb_desc<A_LIMB_BYTES>(a, i, k), limb_desc<B_LIMB_BYTES>(b, j, k),
                        k == 0 && (i == 0 || j == LIMBS - 1) ? k_tile % PROMOTION_PERIOD : 1
                    );
    }
    __device__ __forceinline__ void promote() {
        #pragma unroll
        for (int order = 0; order < LIMB_ORDERS; ++order)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i)
                promoted[order][i] = wrapping_sum(
                    promoted[order][i], __float_as_int(accum[order][i] + INTEGER_BIAS) - INTEGER_BIAS_BITS
                );
    }
    __device__ __forceinline__ Accum result(int i) const { return combine_limbs(promoted, i); }
};
