// The main loop of hopper_halo_dgrad.cu with A in registers (wgmma RS): a warp loads the fragments of each tap group once, for all taps
// of the group. The fragments of a K step are loaded while wgmma multiplies the step before.

#include "hopper_pipeline.cuh"
#include "epilogue_store.cuh"
#include "halo_dgrad_smem.cuh"
#include "ldmatrix.cuh"

constexpr int RELEASES = 4;  // threads of a consumer that release a stage: one of each warp, because each warp loads for itself

constexpr int TAP_GROUPS = sizeof(LOAD_OF_GROUP) / sizeof(int);
typedef unsigned int Fragments[TAP_GROUPS][4];

__device__ __forceinline__ void fence_accumulators(Fragments& a) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < TAP_GROUPS; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
#endif
}

// Multiplies all taps at MMA K step `k`. The first tap of a residue overwrites its accumulators in channel block 0.
template <int TAP> __device__ __forceinline__ void multiply_taps(
    Accum (&accum)[RESIDUES][ACCUMS], Fragments& a, smem_addr_t filters, int channel_block, int k
) {
    const smem_desc_t b = filter_desc(filters + TAP * FILTER_BYTES) + k * FILTER_DESC_STEP_K;
    wgmma_rs(accum[RESIDUE_OF_TAP[TAP]], a[GROUP_OF_TAP[TAP]], b, IS_FIRST_OF_RESIDUE[TAP] && k == 0 ? channel_block : 1);
    if constexpr (TAP + 1 < TAPS) multiply_taps<TAP + 1>(accum, a, filters, channel_block, k);
}

// Multiplies a channel block. It waits for all its loads first, so nothing waits between loading fragments and multiplying them.
__device__ __forceinline__ void multiply_channel_block(
    Accum (&accum)[RESIDUES][ACCUMS], const ConsumerPipeline& smem, PipelineState<STAGES>& pipe, int&, smem_addr_t filters, int channel_block
) {
    const int lane = (int)threadIdx.x % 32;
    wgmma_wait<0>();
    int stage_offset[LOADS], stage[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i, pipe.advance()) {
        mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);
        stage[i] = pipe.stage;
        stage_offset[i] = pipe.stage * STAGE_BYTES;
    }
    Fragments a[2];
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        wgmma_wait<1>();
        fence_accumulators(a[k % 2]);
        #pragma unroll
        for (int i = 0; i < TAP_GROUPS; ++i) {
            const int row = (int)threadIdx.x / 32 % 4 * 16 + lane % 16 + ROW_OFFSET_OF_GROUP[i];
            ldmatrix_x4<false>(a[k % 2][i], smem.memory, stage_offset[LOAD_OF_GROUP[i]] + row * SWIZZLE_BYTES + (((2 * k + lane / 16) ^ row % 8) << 4));
        }
        fence_accumulators(a[k % 2]);
        #pragma unroll
        for (int j = 0; j < RESIDUES; ++j) fence_accumulators(accum[j]);
        wgmma_fence();
        multiply_taps<0>(accum, a[k % 2], filters, channel_block, k);
        wgmma_commit();
    }
    // wgmma has been issued with all fragments, so this warp's loads from the stages are complete.
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < LOADS; ++i)
        if (lane == 0) mbarrier_arrive(smem.empty + 8 * stage[i]);
}
__device__ __forceinline__ void release_last_stage(const ConsumerPipeline&, int) {}
