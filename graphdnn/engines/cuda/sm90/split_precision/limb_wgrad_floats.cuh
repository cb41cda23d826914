// Accumulators of fp32 filter gradients: one set for the products of the first limbs, one set for all smaller products. With
// PROMOTION_INTERVAL they are combined after so many stages and added in fp32 outside the tensor cores.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "limb_wgrad_stage.cuh"

struct LimbAccumulators {
    float accum[2][ACCUMS], promoted[PROMOTION_INTERVAL > 0 ? ACCUMS : 1];  // accum[0]: the smaller products

    __device__ __forceinline__ void clear() {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) accum[0][i] = accum[1][i] = 0;
        #pragma unroll
        for (int i = 0; i < (PROMOTION_INTERVAL > 0 ? ACCUMS : 1); ++i) promoted[i] = 0;
    }
    __device__ __forceinline__ void fence() { fence_accumulators(accum[0]), fence_accumulators(accum[1]); }

    // Multiplies a stage, the smallest products first. `k_tile` counts from the beginning of the work item.
    __device__ __forceinline__ void multiply_stage(smem_desc_t a, smem_desc_t b, int k_tile) {
        const int unpromoted = PROMOTION_INTERVAL > 0 ? k_tile % PROMOTION_PERIOD : 1;  // 0: the accumulators begin anew
        #pragma unroll
        for (int k = 0; k < STAGE_K / 16; ++k)
            #pragma unroll
            for (int order = LIMBS - 1; order >= 0; --order)
                #pragma unroll
                for (int i = 0; i <= order; ++i)
                    wgmma_ss(
                        accum[order == 0], limb_desc<A_LIMB_BYTES>(a, i, k), limb_desc<B_LIMB_BYTES>(b, order - i, k),
                        k == 0 && i == 0 && (order == 0 || order == LIMBS - 1) ? unpromoted : 1
                    );
    }
    __device__ __forceinline__ void promote() {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) promoted[i] += combine_limbs(i);
    }
    __device__ __forceinline__ float result(int i) const {
        if constexpr (PROMOTION_INTERVAL > 0) return promoted[i];
        else return combine_limbs(i);
    }

private:
    // The limbs of an infinity are infinity, NaN and NaN: then the sum of the small products is NaN and must not count.
    __device__ __forceinline__ float combine_limbs(int i) const {
        const float all = accum[1][i] + accum[0][i];
        return fabsf(all) < INFINITY ? all : accum[1][i];
    }
};
