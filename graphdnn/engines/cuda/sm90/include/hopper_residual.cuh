// The residual of hopper_gemm.cu: an epilogue operand as large as the result. TMA loads a tile's elements through the stages of the
// main loop, after the tile's last K tile, so that the epilogue does not wait for memory.
//
// Layout:     a slab has 128 bytes of channels for each pixel of the tile. A stage has one slab in its room for pixels, and further
//             slabs in its room for filters, if that is larger.
//
// Required constants (from the generator), besides those of epilogue_store.cuh: STAGES; type Residual of the operand.

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

constexpr int RELEASES = 4;  // threads of a warpgroup that release a stage: one of each warp, because each warp reads for itself
constexpr int RESIDUAL_SLAB_CHANNELS = SWIZZLE_BYTES / (int)sizeof(Residual), RESIDUAL_SLABS = (TILE_CHANNELS + RESIDUAL_SLAB_CHANNELS - 1) / RESIDUAL_SLAB_CHANNELS;
constexpr int STAGE_SLAB_ROOM = 1 + TILE_CHANNELS / TILE_PIXELS, RESIDUAL_SLABS_PER_STAGE = STAGE_SLAB_ROOM < RESIDUAL_SLABS ? STAGE_SLAB_ROOM : RESIDUAL_SLABS;
constexpr int RESIDUAL_CHANNELS_PER_STAGE = RESIDUAL_SLABS_PER_STAGE * RESIDUAL_SLAB_CHANNELS;
constexpr int RESIDUAL_STAGES = (RESIDUAL_SLABS + RESIDUAL_SLABS_PER_STAGE - 1) / RESIDUAL_SLABS_PER_STAGE;
static_assert((MMA_TILES_M == 1 && !ROW_PAIR_EPILOGUE) || RESIDUAL_STAGES <= STAGES, "a warpgroup with several MMA tiles reads all stages for each of them");

__device__ __forceinline__ void prefetch_residual_map(const Params& p) { prefetch_tensormap(p.residual[0]); }

template <class Acquire> __device__ __forceinline__ void tma_load_residual(const Params& p, const WorkTile& w, Acquire acquire) {
    #pragma unroll 1
    for (int first = 0; first < RESIDUAL_SLABS; first += RESIDUAL_SLABS_PER_STAGE) {
        const int slabs = RESIDUAL_SLABS - first < RESIDUAL_SLABS_PER_STAGE ? RESIDUAL_SLABS - first : RESIDUAL_SLABS_PER_STAGE;
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier, slabs * TILE_PIXELS * SWIZZLE_BYTES);
        const smem_addr_t pixels = SWAP_AB ? b : a, filters = SWAP_AB ? a : b;
        #pragma unroll 1
        for (int i = 0; i < slabs; ++i)
            tma_load_tile(
                i == 0 ? pixels : filters + (i - 1) * TILE_PIXELS * SWIZZLE_BYTES, p.residual[0], barrier,
                w.tile_n * TILE_CHANNELS + (first + i) * RESIDUAL_SLAB_CHANNELS, 0, w.tile_m * TILE_PIXELS
            );
    }
}

// Reads contiguous channels of a pixel from a stage. A dry run, which is not `is_live`, reads whatever is in shared memory, because a
// branch would cost more. The emulator would report that read, so it returns.
__device__ __forceinline__ void read_residual_slab(
    const unsigned char* stages, int stage, int pixel, int channel, [[maybe_unused]] bool is_live, Residual (&to)[VEC_WIDTH]
) {
#ifdef GRAPHDNN_EMULATED
    if (!is_live) return;
#endif
    const int slab = channel / RESIDUAL_SLAB_CHANNELS, byte = channel % RESIDUAL_SLAB_CHANNELS * (int)sizeof(Residual);
    const int pixels = SWAP_AB ? STAGES * TILE_M + stage * TILE_N : stage * TILE_M, filters = SWAP_AB ? stage * TILE_M : STAGES * TILE_M + stage * TILE_N;
    const int row = (slab == 0 ? pixels : filters + (slab - 1) * TILE_PIXELS) + pixel;
    const unsigned char* const from = stages + row * SWIZZLE_BYTES + (byte / 16 ^ pixel % 8) * 16 + byte % 16;
    const Vec<Residual, VEC_WIDTH> vec = *(const Vec<Residual, VEC_WIDTH>*)from;
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) to[e] = vec.data[e];
}

// Adds a thread's residual elements of column block `block` and row `h` to `operands`. `row`: in the tile. `pipe` advances after the
// last column block of a stage. The stage is released if `is_last`, for the warpgroup's last MMA tile.
__device__ __forceinline__ void read_residual(
    const unsigned char* stages, smem_addr_t full, smem_addr_t empty, PipelineState<STAGES>& pipe, EpilogueOperands& operands, int row, bool is_live,
    bool is_last, int block, int h
) {
    const int lane = (int)threadIdx.x % 32, column = block * 32 % RESIDUAL_CHANNELS_PER_STAGE;
    if (is_live && h == 0 && column == 0) mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
        const int first = i * VEC_WIDTH, offset = first / VEC_N * (4 * VEC_N) + first % VEC_N;
        read_residual_slab(stages, pipe.stage, row, column + lane % 4 * VEC_N + offset, is_live, operands.columns[i].residual);
    }
    if (h == 1 && ((block + 1) * 32 % RESIDUAL_CHANNELS_PER_STAGE == 0 || block + 1 == TILE_N / 32)) {
        fence_proxy_async();
        __syncwarp();
        if (is_live && is_last && lane == 0) mbarrier_arrive(empty + 8 * pipe.stage);
        pipe.advance();
    }
}

// ROW_PAIR_EPILOGUE: adds the residual of two channels of a pixel; `channel` and `pixel` are in the tile.
__device__ __forceinline__ void read_residual_pair(
    const unsigned char* stages, const PipelineState<STAGES>& pipe, EpilogueOperands& operands, bool is_live, int channel, int pixel
) {
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
        const int channel_i = channel + i, stage = pipe.stage + channel_i / RESIDUAL_CHANNELS_PER_STAGE;
        read_residual_slab(stages, stage < STAGES ? stage : stage - STAGES, pixel, channel_i % RESIDUAL_CHANNELS_PER_STAGE, is_live, operands.columns[i].residual);
    }
}

// ROW_PAIR_EPILOGUE: waits for all stages of a tile's residual, and releases them.
__device__ __forceinline__ void wait_residual(smem_addr_t full, PipelineState<STAGES> pipe) {
    #pragma unroll
    for (int i = 0; i < RESIDUAL_STAGES; ++i, pipe.advance()) mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
}
__device__ __forceinline__ void release_residual(smem_addr_t empty, PipelineState<STAGES>& pipe) {
    fence_proxy_async();
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < RESIDUAL_STAGES; ++i, pipe.advance())
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * pipe.stage);
}
