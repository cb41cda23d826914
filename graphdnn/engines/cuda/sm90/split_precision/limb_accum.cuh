// Accumulators of split precision, one set for each limb order, combined at the end. While the tensor cores work on one MMA K
// step, a warp splits its rows of the next step into limbs. Accumulators of floats are promoted every PROMOTION_INTERVAL
// stages: they are combined and added to an fp32 sum outside the tensor cores.

#include "hopper_pipeline.cuh"
#include "epilogue_store.cuh"
#include "limb_operands.cuh"

constexpr int PROMOTION_PERIOD = PROMOTION_INTERVAL > 0 ? PROMOTION_INTERVAL : 1;  // a divisor: never 0
static_assert(MMA_K_STEPS % 2 == 0, "K steps alternate between two sets of fragment registers");

struct LimbAccumulators {
    MmaAccum accum[LIMB_ORDERS][ACCUMS];
    Accum promoted[PROMOTION_INTERVAL > 0 ? ACCUMS : 1];

    __device__ __forceinline__ void clear() {
        #pragma unroll
        for (int order = 0; order < LIMB_ORDERS; ++order)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i) accum[order][i] = 0;
        #pragma unroll
        for (int i = 0; i < (PROMOTION_INTERVAL > 0 ? ACCUMS : 1); ++i) promoted[i] = 0;
    }
    __device__ __forceinline__ void fence() {
        #pragma unroll
        for (int order = 0; order < LIMB_ORDERS; ++order) fence_accumulators(accum[order]);
    }
    __device__ __forceinline__ Accum result(int i) const {
        if constexpr (PROMOTION_INTERVAL > 0) return promoted[i];
        else return combine_limbs(accum, i);
    }

    // Adds the products of the next `k_tiles` stages.
    __device__ __forceinline__ void mainloop(const ConsumerSmem& smem, PipelineState<STAGES>& pipe, int k_tiles) {
        word_t a[2][LIMBS_A][4];
        if (k_tiles > 0) {
            mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);
            load_limbs<Element>(a[0], smem.memory, smem.fragment + pipe.stage * A_BYTES, 0);
        }
        bool has_stage = false;
        #pragma unroll 1
        for (; k_tiles > 0; --k_tiles) {
            const int stage = pipe.stage;
            const smem_desc_t b = make_filter_desc(smem.b + stage * B_BYTES);
            pipe.advance();
            #pragma unroll
            for (int k = 0; k < MMA_K_STEPS; ++k) {
                fence();
                #pragma unroll
                for (int i = 0; i < LIMBS_A; ++i) fence_accumulators(a[k % 2][i]);
                wgmma_fence();
                wgmma_k_step(accum, a[k % 2], b, k, PROMOTION_INTERVAL > 0 && k == 0 ? k_tiles % PROMOTION_PERIOD : 1);
                wgmma_commit();
                // The previous K step has finished: its fragment registers are free, and after the last K step of a stage the
                // stage is free too.
                wgmma_wait<1>();
                if (k == 0 && has_stage) smem.release(stage == 0 ? STAGES - 1 : stage - 1);
                int next = stage;
                if (k + 1 == MMA_K_STEPS && k_tiles > 1) {
                    next = pipe.stage;
                    mbarrier_wait_parity(smem.full + 8 * next, pipe.phase);
                }
                load_limbs<Element>(a[(k + 1) % 2], smem.memory, smem.fragment + next * A_BYTES, (k + 1) % MMA_K_STEPS);
            }
            has_stage = true;
            if constexpr (PROMOTION_INTERVAL > 0) {
                if (k_tiles % PROMOTION_PERIOD == 1 % PROMOTION_PERIOD) {
                    wgmma_wait<0>();
                    fence();
                    #pragma unroll
                    for (int i = 0; i < ACCUMS; ++i) promoted[i] += combine_limbs(accum, i);
                }
            }
        }
        wgmma_wait<0>();
        fence();
        if (has_stage) smem.release(pipe.stage == 0 ? STAGES - 1 : pipe.stage - 1);
    }
};
