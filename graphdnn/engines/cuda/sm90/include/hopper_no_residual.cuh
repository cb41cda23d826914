// hopper_gemm.cu without a residual that TMA loads: the functions of hopper_residual.cuh do nothing.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

constexpr int RELEASES = 1, RESIDUAL_STAGES = 0;
__device__ __forceinline__ void prefetch_residual_map(const Params&) {}
template <class Acquire> __device__ __forceinline__ void tma_load_residual(const Params&, const WorkTile&, Acquire) {}
__device__ __forceinline__ void read_residual(
    const unsigned char*, smem_addr_t, smem_addr_t, PipelineState<STAGES>&, EpilogueOperands&, int, bool, bool, int, int
) {}
__device__ __forceinline__ void read_residual_pair(const unsigned char*, const PipelineState<STAGES>&, EpilogueOperands&, bool, int, int) {}
__device__ __forceinline__ void wait_residual(smem_addr_t, PipelineState<STAGES>) {}
__device__ __forceinline__ void release_residual(smem_addr_t, PipelineState<STAGES>&) {}
