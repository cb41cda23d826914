// Filter gradient of groups of 8 to 64 channels: tiles are copied by the threads (cp.async), STAGES - 1 tiles ahead. The MMAs
// and the constants are described in direct_grouped_wgrad_tile.cuh.

#include "pdl.cuh"
#include "direct_copy.cuh"
#include "direct_grouped_halo.cuh"
#include "direct_grouped_wgrad_tile.cuh"

constexpr int X_PIXEL_CHUNKS = GROUPS_PER_CTA * IN_CHUNKS, DY_PIXEL_CHUNKS = GROUPS_PER_CTA * OUT_CHUNKS;
static_assert(X_PIXEL_CHUNKS <= 32 && DY_PIXEL_CHUNKS <= 32 && sizeof(Element) == 2, "a warp copies whole pixels of 16-bit floats");
static_assert(STAGES >= 2, "a tile arrives while another one is multiplied");
static_assert(PIXEL_PITCH == PIXEL_BYTES<X_PIXEL_CHUNKS> && DY_PIXEL_PITCH == PIXEL_BYTES<DY_PIXEL_CHUNKS>, "the pitch of copied pixels");

__device__ __forceinline__ void load_tile(const Params& p, unsigned char* to, unsigned int tile, int group_block) {
    const TileCoord tile_origin = tile_coord(p, tile);
    const Image x{p.image + group_block * (GROUPS_PER_CTA * GROUP_IN), p.image_n,  p.image_h, p.image_w,
                  (int)p.images,                     (int)p.in_h,   (int)p.in_w};
    const Box halo_tile{tile_origin.n, tile_origin.row * STRIDE_H + (int)p.in_row, tile_origin.column * STRIDE_W + (int)p.in_column,
                    (int)p.tile_images, (int)p.halo_h, (int)p.halo_w};
    load_lines<X_PIXEL_CHUNKS, STRIDE_W, WARPS>(x, halo_tile, (int)p.residue_columns, to);
    const Image dy{p.dy + group_block * (GROUPS_PER_CTA * GROUP_OUT), p.dy_n,    p.dy_h, p.dy_w,
                   (int)p.images,                   (int)p.out_h, (int)p.out_w};
    const Box dy_tile{tile_origin.n, tile_origin.row, tile_origin.column, (int)p.tile_images, (int)p.tile_h, (int)p.tile_w};
    load_lines<DY_PIXEL_CHUNKS, 1, WARPS>(dy, dy_tile, (int)p.tile_w, to + (int)p.halo_bytes);
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_grouped_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const WarpRole role = warp_role((int)threadIdx.x / 32);
    const unsigned int group_blocks = (unsigned int)p.group_blocks, tiles = (unsigned int)p.tiles, step = (unsigned int)p.tile_step;
    const int group_block = (int)(blockIdx.x % group_blocks);
    const int residue_stride = (int)p.residue_columns * PIXEL_PITCH, pitch = residue_stride * STRIDE_W;
    const int zeros = STAGES * (int)p.stage_bytes;
    if (threadIdx.x < 4) *(int*)(memory + zeros + threadIdx.x * 4) = 0;
    int offset[WARP_MMAS];
    chunk_offsets(p, role, pitch, residue_stride, offset);
    Accumulators accum;
    clear(accum);

    pdl_wait();
    unsigned int tile = blockIdx.x / group_blocks, ahead = tile;
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage, ahead += step) {
        if (ahead < tiles) load_tile(p, memory + stage * (int)p.stage_bytes, ahead, group_block);
        cp_async_commit();
    }
    int slot = 0;
    #pragma unroll 1
    for (; tile < tiles; tile += step, ahead += step) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // no thread reads the stage that is filled next
        const int next = slot == 0 ? STAGES - 1 : slot - 1;
        if (ahead < tiles) load_tile(p, memory + next * (int)p.stage_bytes, ahead, group_block);
        cp_async_commit();
        const int halo_tile = slot * (int)p.stage_bytes;
        const TileExtent extent = tile_extent(p, tile_coord(p, tile));
        multiply_tile(p, role, extent, memory, halo_tile, halo_tile + (int)p.halo_bytes, zeros, pitch, offset, accum);
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    cp_async_wait<0>();
    pdl_trigger();
    store_partial(p, role, memory, group_block, (int)(blockIdx.x / group_blocks), accum);
}
