// An operand as large as the result that the epilogue reads: the copy unit brings a tile's part of it through the ring, after
// the last step of the tile's products, so that nobody waits for memory when sums leave.
//
// A panel is a tile's pixels, 128 bytes of channels each; a stage has room for one where it has the pixels of a step, and for
// more where it has the filters'.

constexpr int RELEASES = 4;  // of a warpgroup, that free a stage: each warp has read for itself
constexpr int RESIDUAL_SLAB_CHANNELS = SWIZZLE_BYTES / (int)sizeof(Residual), RESIDUAL_SLABS = (TILE_CHANNELS + RESIDUAL_SLAB_CHANNELS - 1) / RESIDUAL_SLAB_CHANNELS;
constexpr int RESIDUAL_SLAB_ROOM = 1 + TILE_CHANNELS / TILE_PIXELS, RESIDUAL_SLABS_PER_STAGE = RESIDUAL_SLAB_ROOM < RESIDUAL_SLABS ? RESIDUAL_SLAB_ROOM : RESIDUAL_SLABS;
constexpr int RESIDUAL_CHANNELS_PER_STAGE = RESIDUAL_SLABS_PER_STAGE * RESIDUAL_SLAB_CHANNELS;  // by a stage
constexpr int RESIDUAL_STAGES = (RESIDUAL_SLABS + RESIDUAL_SLABS_PER_STAGE - 1) / RESIDUAL_SLABS_PER_STAGE;
static_assert((MMA_TILES_M == 1 && !ROW_PAIR_EPILOGUE) || RESIDUAL_STAGES <= STAGES, "all of them at once, where their rows come in turns");

__device__ __forceinline__ void prefetch_residual_map(const Params& p) { prefetch_tensormap(p.residual[0]); }

template <class Acquire> __device__ __forceinline__ void tma_load_residual(const Params& p, const WorkTile& w, Acquire acquire) {
    #pragma unroll 1
    for (int first = 0; first < RESIDUAL_SLABS; first += RESIDUAL_SLABS_PER_STAGE) {
        const int count = RESIDUAL_SLABS - first < RESIDUAL_SLABS_PER_STAGE ? RESIDUAL_SLABS - first : RESIDUAL_SLABS_PER_STAGE;
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier, count * TILE_PIXELS * SWIZZLE_BYTES);
        const smem_addr_t pixels = SWAP_AB ? b : a, filters = SWAP_AB ? a : b;
        #pragma unroll 1
        for (int i = 0; i < count; ++i)
            tma_load_tile(
                i == 0 ? pixels : filters + (i - 1) * TILE_PIXELS * SWIZZLE_BYTES, p.residual[0], barrier,
                w.tile_n * TILE_CHANNELS + (first + i) * RESIDUAL_SLAB_CHANNELS, 0, w.tile_m * TILE_PIXELS
            );
    }
}

// A pixel's neighbouring channels out of a stage's panels. A rehearsal reads whatever lies there, without a branch; the
// emulator would see that as a mistake.
__device__ __forceinline__ void read_residual_slab(
    const unsigned char* ring, int stage, int pixel, int channel, [[maybe_unused]] bool is_live, Residual (&to)[VEC_WIDTH]
) {
#ifdef GRAPHDNN_EMULATED
    if (!is_live) return;
#endif
    const int panel = channel / RESIDUAL_SLAB_CHANNELS, byte = channel % RESIDUAL_SLAB_CHANNELS * (int)sizeof(Residual);
    const int pixels = SWAP_AB ? STAGES * TILE_M + stage * TILE_N : stage * TILE_M, filters = SWAP_AB ? stage * TILE_M : STAGES * TILE_M + stage * TILE_N;
    const int row = (panel == 0 ? pixels : filters + (panel - 1) * TILE_PIXELS) + pixel;
    const unsigned char* const from = ring + row * SWIZZLE_BYTES + (byte / 16 ^ pixel % 8) * 16 + byte % 16;
    const Vec<Residual, VEC_WIDTH> pack = *(const Vec<Residual, VEC_WIDTH>*)from;
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) to[e] = pack.data[e];
}

// What the epilogue keeps, with a thread's elements in a block of 32 columns. `row` is in the tile; `turn` goes on with the
// columns, and a stage is free again after the last of its rows' `is_last`. A rehearsal (hopper_gemm.cu) is not `is_live`.
__device__ __forceinline__ void read_residual(
    const unsigned char* ring, smem_addr_t full, smem_addr_t empty, PipelineState<STAGES>& pipe, EpilogueOperands& held, int row, bool is_live, bool is_last,
    int block, int h
) {
    const int lane = (int)threadIdx.x % 32, column = block * 32 % RESIDUAL_CHANNELS_PER_STAGE;
    if (is_live && h == 0 && column == 0) mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
        const int first = i * VEC_WIDTH, place = first / VEC_N * (4 * VEC_N) + first % VEC_N;
        read_residual_slab(ring, pipe.stage, row, column + lane % 4 * VEC_N + place, is_live, held.kept[i].residual);
    }
    if (h == 1 && ((block + 1) * 32 % RESIDUAL_CHANNELS_PER_STAGE == 0 || block + 1 == TILE_N / 32)) {
        fence_proxy_async();
        __syncwarp();
        if (is_live && is_last && lane == 0) mbarrier_arrive(empty + 8 * pipe.stage);
        pipe.advance();
    }
}

// The same where rows are channels: `channel` and `pixel` are in the tile.
__device__ __forceinline__ void read_pair(
    const unsigned char* ring, const PipelineState<STAGES>& pipe, EpilogueOperands& held, bool is_live, int channel, int pixel
) {
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
        const int here = channel + i, stage = pipe.stage + here / RESIDUAL_CHANNELS_PER_STAGE;
        read_residual_slab(ring, stage < STAGES ? stage : stage - STAGES, pixel, here % RESIDUAL_CHANNELS_PER_STAGE, is_live, held.kept[i].residual);
    }
}

// All stages of a tile's: waited for by all threads, and freed.
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
