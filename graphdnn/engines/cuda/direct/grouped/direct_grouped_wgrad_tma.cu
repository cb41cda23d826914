// Filter gradient of groups of 8 to 64 channels: tiles are loaded by TMA. The MMAs and the constants are described in
// direct_grouped_wgrad_tile.cuh.
//
// Pipeline: one elected thread of warp 0 issues the loads of the tile that is STAGES - 1 tiles ahead: boxes of x, one for each
// column residue modulo the stride, and a box of dy, each again for every 128 bytes of channels.

#include "pdl.cuh"
#include "direct_grouped_halo.cuh"
#include "hopper_pipeline.cuh"
#include "direct_grouped_wgrad_tile.cuh"

constexpr int X_SLICES = (GROUPS_PER_CTA * GROUP_IN * 2 + PIXEL_PITCH - 1) / PIXEL_PITCH, DY_SLICES = (GROUPS_PER_CTA * GROUP_OUT * 2 + DY_PIXEL_PITCH - 1) / DY_PIXEL_PITCH;
static_assert(STRIDE_W <= 2 && sizeof(Element) == 2 && sizeof(TileExtent) == 32, "columns are even and odd ones, or all alike");

__device__ __forceinline__ void load_tile(const Params& p, const TileCoord& tile_origin, smem_addr_t stage_smem, smem_addr_t barrier, int group_block) {
    const int row = tile_origin.row * STRIDE_H + (int)p.in_row, column = tile_origin.column * STRIDE_W + (int)p.in_column;
    mbarrier_expect_tx(barrier, (int)p.tx_bytes);
    #pragma unroll
    for (int slice_index = 0; slice_index < X_SLICES; ++slice_index) {
        const int channel = group_block * (GROUPS_PER_CTA * GROUP_IN) + slice_index * (PIXEL_PITCH / 2);
        const smem_addr_t destination = stage_smem + slice_index * (int)p.x_slice_bytes;
        if constexpr (STRIDE_W == 1)
            tma_load_tile(destination, p.image[0], barrier, channel, column, row, tile_origin.n);
        else
            #pragma unroll
            for (int odd = 0; odd < 2; ++odd)
                tma_load_tile(
                    destination + odd * (int)p.residue_bytes, p.image[0], barrier, channel, (column + odd) & 1, (column + odd) >> 1, row,
                    tile_origin.n
                );
    }
    #pragma unroll
    for (int slice_index = 0; slice_index < DY_SLICES; ++slice_index)
        tma_load_tile(
            stage_smem + (int)p.halo_bytes + slice_index * (int)p.dy_slice_bytes, p.dy[0], barrier, group_block * (GROUPS_PER_CTA * GROUP_OUT) + slice_index * (DY_PIXEL_PITCH / 2),
            tile_origin.column, tile_origin.row, tile_origin.n
        );
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_grouped_wgrad_tma(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const unsigned int group_blocks = (unsigned int)p.group_blocks, tiles = (unsigned int)p.tiles, step = (unsigned int)p.tile_step;
    const int group_block = (int)(blockIdx.x % group_blocks);
    const int stage_bytes = (int)p.stage_bytes, zeros = STAGES * stage_bytes;
    TileExtent* const tile_extents = (TileExtent*)(memory + zeros + 16);
    const smem_addr_t ring = smem_addr(memory), full = ring + zeros + 16 + 32 * STAGES, empty = full + 8 * STAGES;
    if (threadIdx.x < 4) *(int*)(memory + zeros + threadIdx.x * 4) = 0;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, WARPS);
        fence_barrier_init();
        prefetch_tensormap(p.image[0]);
        prefetch_tensormap(p.dy[0]);
    }
    __syncthreads();
    pdl_wait();
    const WarpRole role = warp_role(warp);
    const int pitch = (int)p.residue_columns * PIXEL_PITCH;
    int offset[WARP_MMAS];
    chunk_offsets(p, role, pitch, (int)p.residue_bytes, offset);
    Accumulators accum;
    clear(accum);

    unsigned int tile = blockIdx.x / group_blocks, ahead = tile;
    PipelineState<STAGES> pipe, load_pipe;
    const bool is_producer = warp == 0 && elect_one();
    const auto load_next = [&]() {
        if (!is_producer || ahead >= tiles) return;
        const TileCoord tile_origin = tile_coord(p, ahead);
        mbarrier_wait_parity(empty + 8 * load_pipe.stage, load_pipe.phase ^ 1);
        tile_extents[load_pipe.stage] = tile_extent(p, tile_origin);
        load_tile(p, tile_origin, ring + load_pipe.stage * stage_bytes, full + 8 * load_pipe.stage, group_block);
        load_pipe.advance();
        ahead += step;
    };
    #pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) load_next();
    #pragma unroll 1
    for (; tile < tiles; tile += step) {
        load_next();
        __syncwarp();
        mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
        const TileExtent extent = tile_extents[pipe.stage];
        const int halo_tile = pipe.stage * stage_bytes;
        multiply_tile(p, role, extent, memory, halo_tile, halo_tile + (int)p.halo_bytes, zeros, pitch, offset, accum);
        fence_proxy_async();
        __syncwarp();
        if (role.lane == 0) mbarrier_arrive(empty + 8 * pipe.stage);
        pipe.advance();
    }
    pdl_trigger();
    store_partial(p, role, memory, group_block, (int)(blockIdx.x / group_blocks), accum);
}
