// Filter gradient of narrow groups whose tiles the copy unit brings (direct_grouped_wgrad_tile.cuh).
//
// A thread asks for the tile that is STAGES - 1 further on before its warp multiplies one: boxes of x, one for each remainder of columns by the stride, and a box of dy, each again
// for every 128 bytes of channels.

constexpr int HALVES_X = (GROUPS * IN * 2 + PIXEL - 1) / PIXEL, HALVES_DY = (GROUPS * OUT * 2 + RESULT - 1) / RESULT;
static_assert(STRIDE_W <= 2 && sizeof(Element) == 2 && sizeof(Part) == 32, "columns are even and odd ones, or all alike");

__device__ __forceinline__ void fetch(const Params& p, const Corner& corner, smem_addr_t to, smem_addr_t barrier, int slab) {
    const int row = corner.row * STRIDE_H + (int)p.in_row, column = corner.column * STRIDE_W + (int)p.in_column;
    mbarrier_expect_tx(barrier, (int)p.landing);
    #pragma unroll
    for (int half = 0; half < HALVES_X; ++half) {
        const int channel = slab * (GROUPS * IN) + half * (PIXEL / 2);
        const smem_addr_t here = to + half * (int)p.patch_half;
        if constexpr (STRIDE_W == 1)
            tma_load_tile(here, p.gathered[0], barrier, channel, column, row, corner.n);
        else
            #pragma unroll
            for (int odd = 0; odd < 2; ++odd)
                tma_load_tile(
                    here + odd * (int)p.apart_bytes, p.gathered[0], barrier, channel, (column + odd) & 1, (column + odd) >> 1, row,
                    corner.n
                );
    }
    #pragma unroll
    for (int half = 0; half < HALVES_DY; ++half)
        tma_load_tile(
            to + (int)p.patch_bytes + half * (int)p.results_half, p.plain[0], barrier, slab * (GROUPS * OUT) + half * (RESULT / 2),
            corner.column, corner.row, corner.n
        );
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_grouped_wgrad_boxes(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const unsigned int slabs = (unsigned int)p.slabs, tiles = (unsigned int)p.tiles, step = (unsigned int)p.tile_step;
    const int slab = (int)(blockIdx.x % slabs);
    const int stage_bytes = (int)p.stage_bytes, zeros = STAGES * stage_bytes;
    Part* const parts = (Part*)(memory + zeros + 16);
    const smem_addr_t ring = smem_addr(memory), full = ring + zeros + 16 + 32 * STAGES, empty = full + 8 * STAGES;
    if (threadIdx.x < 4) *(int*)(memory + zeros + threadIdx.x * 4) = 0;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, WARPS);
        fence_barrier_init();
        prefetch_tensormap(p.gathered[0]);
        prefetch_tensormap(p.plain[0]);
    }
    __syncthreads();
    pdl_wait();
    const Duty duty = duty_of(warp);
    const int pitch = (int)p.patch_apart * PIXEL;
    int offset[OWN];
    place_chunks(p, duty, pitch, (int)p.apart_bytes, offset);
    Sums sum;
    clear(sum);

    unsigned int tile = blockIdx.x / slabs, ahead = tile;
    PipelineState<STAGES> at, asked;
    const bool asks = warp == 0 && elect_one();
    const auto ask = [&]() {
        if (!asks || ahead >= tiles) return;
        const Corner corner = corner_of(p, ahead);
        mbarrier_wait_parity(empty + 8 * asked.stage, asked.phase ^ 1);
        parts[asked.stage] = part_of(p, corner);
        fetch(p, corner, ring + asked.stage * stage_bytes, full + 8 * asked.stage, slab);
        asked.advance();
        ahead += step;
    };
    #pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) ask();
    #pragma unroll 1
    for (; tile < tiles; tile += step) {
        ask();
        __syncwarp();
        mbarrier_wait_parity(full + 8 * at.stage, at.phase);
        const Part part = parts[at.stage];
        const int patch = at.stage * stage_bytes;
        multiply_tile(p, duty, part, memory, patch, patch + (int)p.patch_bytes, zeros, pitch, offset, sum);
        fence_proxy_async();
        __syncwarp();
        if (duty.lane == 0) mbarrier_arrive(empty + 8 * at.stage);
        at.advance();
    }
    pdl_trigger();
    leave(p, duty, memory, slab, (int)(blockIdx.x / slabs), sum);
}
