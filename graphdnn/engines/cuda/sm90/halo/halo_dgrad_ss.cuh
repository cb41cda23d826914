// The main loop of hopper_halo_dgrad.cu with A in shared memory (wgmma SS): each tap reads its pixels by a descriptor of its own.

#include "hopper_pipeline.cuh"
#include "epilogue_store.cuh"
#include "halo_dgrad_smem.cuh"

constexpr int RELEASES = 1;  // threads of a consumer that release a stage

// Multiplies, at MMA K step `k`, the taps that read load LOAD. The first tap of a residue overwrites its accumulators in channel block
// 0. wgmma on the same accumulators are serialized, so the taps of different residues alternate.
template <int LOAD, int TAP> __device__ __forceinline__ void multiply_taps(
    Accum (&accum)[RESIDUES][ACCUMS], smem_addr_t pixels, smem_addr_t filters, int channel_block, int k
) {
    constexpr int GROUP = GROUP_OF_TAP[TAP];
    if constexpr (LOAD_OF_GROUP[GROUP] == LOAD) {
        const smem_desc_t a = make_desc<false>(pixels) + ROW_OFFSET_OF_GROUP[GROUP] * (SWIZZLE_BYTES >> 4);
        const smem_desc_t b = filter_desc(filters + TAP * FILTER_BYTES);
        wgmma_ss(accum[RESIDUE_OF_TAP[TAP]], a + k * DESC_STEP_K<false>, b + k * FILTER_DESC_STEP_K, IS_FIRST_OF_RESIDUE[TAP] && k == 0 ? channel_block : 1);
    }
    if constexpr (TAP + 1 < TAPS) multiply_taps<LOAD, TAP + 1>(accum, pixels, filters, channel_block, k);
}

template <int LOAD> __device__ __forceinline__ void multiply_loads(
    Accum (&accum)[RESIDUES][ACCUMS], const ConsumerPipeline& smem, PipelineState<STAGES>& pipe, int& unreleased, smem_addr_t filters, int channel_block
) {
    mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);
    #pragma unroll
    for (int j = 0; j < RESIDUES; ++j) fence_accumulators(accum[j]);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; ++k) multiply_taps<LOAD, 0>(accum, smem.stages + pipe.stage * STAGE_BYTES, filters, channel_block, k);
    wgmma_commit();
    wgmma_wait<1>();
    // The wgmma group of the previous load is complete, so the producer may fill its stage.
    if (unreleased >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(smem.empty + 8 * unreleased);
    unreleased = pipe.stage;
    pipe.advance();
    if constexpr (LOAD + 1 < LOADS) multiply_loads<LOAD + 1>(accum, smem, pipe, unreleased, filters, channel_block);
}

// Multiplies a channel block. `unreleased`: the stage that the last wgmma group reads, -1 before the first.
__device__ __forceinline__ void multiply_channel_block(
    Accum (&accum)[RESIDUES][ACCUMS], const ConsumerPipeline& smem, PipelineState<STAGES>& pipe, int& unreleased, smem_addr_t filters, int channel_block
) {
    multiply_loads<0>(accum, smem, pipe, unreleased, filters, channel_block);
}
__device__ __forceinline__ void release_last_stage(const ConsumerPipeline& smem, int unreleased) {
    if (threadIdx.x % 128 == 0) mbarrier_arrive(smem.empty + 8 * unreleased);
}
