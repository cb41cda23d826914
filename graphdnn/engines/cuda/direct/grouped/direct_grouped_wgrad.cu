// Filter gradient of narrow groups whose tiles threads copy (direct_grouped_wgrad_tile.cuh).

constexpr int WIDE = GROUPS * IN_CHUNKS, NARROW = GROUPS * OUT_CHUNKS;
static_assert(WIDE <= 32 && NARROW <= 32 && sizeof(Element) == 2, "a warp copies whole pixels of 16-bit floats");
static_assert(STAGES >= 2, "a tile arrives while another one is multiplied");
static_assert(PIXEL == PIXEL_BYTES<WIDE> && RESULT == PIXEL_BYTES<NARROW>, "as they are copied");

__device__ __forceinline__ void fetch(const Params& p, unsigned char* to, unsigned int tile, int slab) {
    const Corner corner = corner_of(p, tile);
    const Image x{p.gathered + slab * (GROUPS * IN), p.gathered_n,  p.gathered_h, p.gathered_w,
                  (int)p.images,                     (int)p.in_h,   (int)p.in_w};
    const Cut patch{corner.n, corner.row * STRIDE_H + (int)p.in_row, corner.column * STRIDE_W + (int)p.in_column,
                    (int)p.tile_images, (int)p.patch_h, (int)p.patch_w};
    fetch_lines<WIDE, STRIDE_W, WARPS>(x, patch, (int)p.patch_apart, to);
    const Image dy{p.plain + slab * (GROUPS * OUT), p.plain_n,    p.plain_h, p.plain_w,
                   (int)p.images,                   (int)p.out_h, (int)p.out_w};
    const Cut results{corner.n, corner.row, corner.column, (int)p.tile_images, (int)p.tile_h, (int)p.tile_w};
    fetch_lines<NARROW, 1, WARPS>(dy, results, (int)p.tile_w, to + (int)p.patch_bytes);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_grouped_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const Duty duty = duty_of((int)threadIdx.x / 32);
    const unsigned int slabs = (unsigned int)p.slabs, tiles = (unsigned int)p.tiles, step = (unsigned int)p.tile_step;
    const int slab = (int)(blockIdx.x % slabs);
    const int apart = (int)p.patch_apart * PIXEL, pitch = apart * STRIDE_W;
    const int zeros = STAGES * (int)p.stage_bytes;
    if (threadIdx.x < 4) *(int*)(memory + zeros + threadIdx.x * 4) = 0;
    int offset[OWN];
    place_chunks(p, duty, pitch, apart, offset);
    Sums sum;
    clear(sum);

    pdl_wait();
    unsigned int tile = blockIdx.x / slabs, ahead = tile;
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage, ahead += step) {
        if (ahead < tiles) fetch(p, memory + stage * (int)p.stage_bytes, ahead, slab);
        commit_copies();
    }
    int slot = 0;
    #pragma unroll 1
    for (; tile < tiles; tile += step, ahead += step) {
        await_copies<STAGES - 2>();
        __syncthreads();  // and nobody reads the stage that is filled next
        const int next = slot == 0 ? STAGES - 1 : slot - 1;
        if (ahead < tiles) fetch(p, memory + next * (int)p.stage_bytes, ahead, slab);
        commit_copies();
        const int patch = slot * (int)p.stage_bytes;
        const Part part = part_of(p, corner_of(p, tile));
        multiply_tile(p, duty, part, memory, patch, patch + (int)p.patch_bytes, zeros, pitch, offset, sum);
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    await_copies<0>();
    pdl_trigger();
    leave(p, duty, memory, slab, (int)(blockIdx.x / slabs), sum);
}
