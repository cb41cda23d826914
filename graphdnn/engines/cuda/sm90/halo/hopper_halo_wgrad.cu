// Filter gradient of unit stride by wgmma for sm_90a: a halo tile of the image is loaded once for all taps.
//
//   dw[k, r, s, c] = sum over n, h, w of dy[n, h, w, k] * x[n, h + r * DILATION_H - pad_h, w + s * DILATION_W - pad_w, c]
//
// Tile:       a filter block: 64 channels k (rows) by CHANNELS channels c of all TAPS_H x TAPS_W taps (columns). K is pixels: a K tile is
//             TILE_H x TILE_W pixels of dy. Consumer warpgroup r has the taps (r, 0) to (r, TAPS_W - 1) as TAPS_W * CHANNELS columns.
// Pipeline:   STAGES stages, each with a halo tile of x and a tile of dy. TMA bytes complete `full`, one arrival of each consumer warpgroup
//             completes `empty`.
// Warp roles: warpgroup 0 is the producer; one elected thread issues TMA. The others issue wgmma with A and B in shared memory.
// Layout:     a halo tile has HALO_H x HALO_W pixels, a row of PIXEL_BYTES for each, zeros outside the image; the swizzle span is PIXEL_BYTES.
//             Both operands are MN-major: a row is one K. An MMA K step is 16 pixels: twice eight neighbours of an image row. The columns of
//             the next tap are the same rows shifted by DILATION_W, so the descriptor's leading offset steps from tap to tap.
//             Tiles of dy do not reach beyond dy, because x is not zero there.
// Depth:      with three axes, a tile lies in a depth slice of dy, and a filter block has one tap along the depth.
// Split-K:    filter blocks from p.unsplit_blocks on are split among p.splits work items, which store partial sums (split_k_partials.cuh).
// Staggering: in a CTA's first filter block, warpgroups start STAGGER_TILES halo tiles apart, so that the epilogue of one overlaps the main
//             loops of the others.
// Epilogue:   each tap's accumulators, 32 columns at a time, through generated operations, then direct stores.
//
// Required constants (from the generator), besides those of conv_work_tile.cuh and epilogue_store.cuh (TILE_M = TILE_N = 64):
//   STAGES                        stages of the pipeline
//   CHANNELS                      channels c of a filter block, 64 or 32
//   TILE_H, TILE_W                pixels of a tile of dy: 8 columns and an even number of rows, or a multiple of 16 columns
//   TAPS_H, TAPS_W                taps of a plane of the filter, at most 3 x 4
//   DILATION_H, DILATION_W        pixels from tap to tap
//   LAUNCH_THREADS                threads that the launch bounds declare: at least those of a CTA, more to leave registers for another kernel
//   CONSUMER_REGS, PRODUCER_REGS  registers of a consumer thread and of a producer thread

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "split_k_partials.cuh"

static_assert(LAUNCH_THREADS >= 128 * (TAPS_H + 1), "a warpgroup for each row of taps, and a producer");
constexpr int PIXEL_BYTES = CHANNELS * (int)sizeof(Element);
constexpr int HALO_W = TILE_W + (TAPS_W - 1) * DILATION_W, HALO_H = TILE_H + (TAPS_H - 1) * DILATION_H;
constexpr int HALO_LOAD_BYTES = HALO_H * HALO_W * PIXEL_BYTES, HALO_TILE_BYTES = (HALO_LOAD_BYTES + 1023) / 1024 * 1024, DY_TILE_BYTES = TILE_H * TILE_W * SWIZZLE_BYTES;
constexpr int STAGE_BYTES = HALO_TILE_BYTES + DY_TILE_BYTES;
constexpr int TAP_ACCUMS = CHANNELS / 2;
static_assert(WGRAD && !(SWAP_AB || FILTER_MN_MAJOR || PERMUTE_N), "a filter gradient reads no filter");
static_assert(TILE_M == SLAB_ROWS && TILE_N == SLAB_ROWS && CONSUMER_WARPGROUPS == 1, "the epilogue stores 64 channels of one tap at a time");
static_assert(PIXEL_BYTES == 128 || PIXEL_BYTES == 64, "the swizzle spans of the descriptor below");
static_assert((TILE_W == 8 && TILE_H % 2 == 0) || TILE_W % 16 == 0, "MMA K steps of 16 pixels are whole");

// Rows of the halo tile before MMA K step k, and from the first eight pixels of a step to the other eight.
constexpr int rows_before(int k) { return TILE_W == 8 ? 2 * k * HALO_W : k / (TILE_W / 16) * HALO_W + k % (TILE_W / 16) * 16; }
constexpr int ROWS_BETWEEN_EIGHTS = TILE_W == 8 ? HALO_W : 8;

// The descriptor of B: the leading offset goes from tap to tap, the stride offset from eight pixels to the next eight.
__device__ __forceinline__ smem_desc_t make_taps_desc(smem_addr_t address) {
    const smem_desc_t leading_offset = DILATION_W * PIXEL_BYTES >> 4, stride_offset = ROWS_BETWEEN_EIGHTS * PIXEL_BYTES >> 4, swizzle_mode = PIXEL_BYTES == 128 ? 1 : 2;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | leading_offset << 16 | stride_offset << 32 | swizzle_mode << 62;
}

// What a CTA computes at a time: a filter block at tap `depth_tap` along the depth, and its halo tiles [begin, end). `split_block` counts
// the split filter blocks; it is -1 for a filter block that is not split.
struct FilterBlockWork { int tile_m, channel_block, depth_tap, begin, end, split, split_block; };

__device__ __forceinline__ FilterBlockWork decode_filter_block_work(const Params& p, int item) {
    FilterBlockWork work;
    work.begin = work.split = 0;
    work.end = (int)p.halo_tiles;
    work.split_block = -1;
    if (SPLIT_K && item >= (int)p.unsplit_blocks) {
        work.split = item - (int)p.unsplit_blocks;
        work.split_block = divmod_inplace(work.split, (int)p.filter_blocks - (int)p.unsplit_blocks);
        split_range((int)p.halo_tiles, work.split, (int)p.splits, work.begin, work.end);
        item = (int)p.unsplit_blocks + work.split_block;
    }
    work.depth_tap = SPATIAL == 3 ? divmod_inplace(item, (int)p.taps[0]) : 0;
    work.channel_block = divmod_inplace(item, (int)p.filter_blocks_n);
    work.tile_m = item;
    return work;
}

// The index of a tap in the filter.
__device__ __forceinline__ int tap_index(const Params& p, int depth_tap, int r, int s) {
    return (int)p.first_tap_index + depth_tap * (int)p.tap_index_stride[0] + r * (int)p.tap_index_stride[1] + s * (int)p.tap_index_stride[2];
}

__device__ __forceinline__ WorkTile tap_work_tile(const Params& p, const FilterBlockWork& work, int r, int s) {
    WorkTile w{};
    w.tile_m = work.tile_m;
    w.tile_n = tap_index(p, work.depth_tap, r, s) * (int)p.channel_blocks + work.channel_block * CHANNELS / SLAB_ROWS;
    return w;
}
// The column block, in the tap's 64 channels, of the filter block's column block i.
__device__ __forceinline__ int column_block_in_slab(const FilterBlockWork& work, int i) { return CHANNELS == SLAB_ROWS ? i : work.channel_block % 2; }

// Fragments of partial sums: [split filter block][tap][column block].
constexpr int FRAGMENTS = TAPS_H * TAPS_W * (CHANNELS / 32);
__device__ __forceinline__ int fragments_per_split(const Params& p) { return ((int)p.filter_blocks - (int)p.unsplit_blocks) * FRAGMENTS; }
__device__ __forceinline__ PartialTile partial_tile_at(const Params& p, int fragment) {
    const int i = divmod_inplace(fragment, CHANNELS / 32), s = divmod_inplace(fragment, TAPS_W), r = divmod_inplace(fragment, TAPS_H);
    const FilterBlockWork work = decode_filter_block_work(p, (int)p.unsplit_blocks + fragment);
    return PartialTile{tap_work_tile(p, work, r, s), 0, column_block_in_slab(work, i)};
}

// Staggering needs a pipeline that is deep enough for the distance between the first warpgroup and the last. Warpgroup r waits at named
// barrier 1 + r for warpgroup 0.
constexpr int STAGGER_TILES = 2;
constexpr bool MAY_STAGGER = STAGES > STAGGER_TILES * (TAPS_H - 1);
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void stagger_arrive(int r) { asm volatile("bar.arrive %0, 256;" ::"r"(1 + r) : "memory"); }
__device__ __forceinline__ void stagger_wait(int r) { asm volatile("bar.sync %0, 256;" ::"r"(1 + r) : "memory"); }
#else
__device__ __forceinline__ void stagger_arrive(int) {}
__device__ __forceinline__ void stagger_wait(int) {}
#endif

extern "C" __global__ void __launch_bounds__(LAUNCH_THREADS, 1) hopper_halo_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t stages = smem_addr(memory), full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, TAPS_H);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    if (p.trigger_early) pdl_trigger();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int items = (int)p.unsplit_blocks + ((int)p.filter_blocks - (int)p.unsplit_blocks) * (int)p.splits;
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        // producer
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            bool is_first = true;
            #pragma unroll 1
            for (int item = blockIdx.x; item < items; item += gridDim.x) {
                const FilterBlockWork work = decode_filter_block_work(p, item);
                #pragma unroll 1
                for (int tile = work.begin; tile < work.end; ++tile) {
                    int rem = tile;
                    const int x = divmod_inplace(rem, (int)p.halo_tiles_w) * TILE_W, y = divmod_inplace(rem, (int)p.halo_tiles_h) * TILE_H;
                    if (is_first) pdl_wait();  // after the coordinates are computed
                    is_first = false;
                    mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                    const smem_addr_t halo_tile = stages + pipe.stage * STAGE_BYTES, barrier = full + 8 * pipe.stage;
                    mbarrier_expect_tx(barrier, HALO_LOAD_BYTES + DY_TILE_BYTES);
                    const smem_addr_t dy_tile = halo_tile + HALO_TILE_BYTES;
                    const int w = x + (int)p.lower_corner[2], h = y + (int)p.lower_corner[1], channel = work.channel_block * CHANNELS;
                    if constexpr (SPATIAL == 3) {
                        const int z = divmod_inplace(rem, (int)p.pixels[0]);
                        const int d = z * (int)p.traversal_stride[0] + (int)p.lower_corner[0] + work.depth_tap * abs((int)p.dilation[0]);
                        tma_load_tile(dy_tile, p.dense_map[0], barrier, work.tile_m * TILE_M, x, y, z, rem);
                        tma_load_tile(halo_tile, p.im2col_map[0], barrier, channel, w, h, d, rem);
                    } else {
                        tma_load_tile(dy_tile, p.dense_map[0], barrier, work.tile_m * TILE_M, x, y, rem);
                        tma_load_tile(halo_tile, p.im2col_map[0], barrier, channel, w, h, rem);
                    }
                    pipe.advance();
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int r = warpgroup - 1;
        float accum[TAPS_W * TAP_ACCUMS];
        #pragma unroll
        for (int i = 0; i < TAPS_W * TAP_ACCUMS; ++i) accum[i] = 0;
        Tap taps[TAPS_W];  // at tap 0 along the depth
        #pragma unroll
        for (int s = 0; s < TAPS_W; ++s) taps[s] = decode_tap(p, 0, tap_index(p, 0, r, s));
        #pragma unroll 1
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            // main loop
            const FilterBlockWork work = decode_filter_block_work(p, item);
            const bool is_staggered = MAY_STAGGER && item == (int)blockIdx.x && work.split_block < 0 && work.end - work.begin > STAGGER_TILES * TAPS_H;
            if (is_staggered && r > 0) stagger_wait(r);
            int unreleased = -1;
            #pragma unroll 2
            for (int tile = work.begin; tile < work.end; ++tile) {
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const smem_addr_t halo_tile = stages + pipe.stage * STAGE_BYTES;
                const smem_desc_t a = make_desc<true>(halo_tile + HALO_TILE_BYTES), b = make_taps_desc(halo_tile + r * (DILATION_H * HALO_W * PIXEL_BYTES));
                fence_accumulators(accum);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < TILE_H * TILE_W / 16; ++k)
                    wgmma_ss(accum, a + k * DESC_STEP_K<true>, b + (rows_before(k) * PIXEL_BYTES >> 4), k == 0 ? tile - work.begin : 1);
                wgmma_commit();
                wgmma_wait<1>();
                // The wgmma group of the previous halo tile is complete, so the producer may fill its stage.
                if (unreleased >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * unreleased);
                unreleased = pipe.stage;
                pipe.advance();
                if (is_staggered && r == 0)
                    #pragma unroll
                    for (int other = 1; other < TAPS_H; ++other)
                        if (tile - work.begin == STAGGER_TILES * other - 1) stagger_arrive(other);
            }

            // epilogue
            EpilogueCoordsOf<true> coords;
            (RowCoords&)coords = row_coords(p, tap_work_tile(p, work, r, 0), 0, 0);
            coords.columns[0].first = work.channel_block * CHANNELS / SLAB_ROWS * SLAB_ROWS;
            coords.columns[0].limit = (int)p.channels;
            wgmma_wait<0>();
            if (item + (int)gridDim.x >= items) pdl_trigger();
            fence_accumulators(accum);
            if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * unreleased);
            #pragma unroll
            for (int s = 0; s < TAPS_W; ++s) {
                coords.columns[0].tap = taps[s];
                if (SPATIAL == 3) coords.columns[0].tap.coord[0] += (int)p.tap_index_stride[0] < 0 ? -work.depth_tap : work.depth_tap;
                #pragma unroll
                for (int i = 0; i < CHANNELS / 32; ++i) {
                    float block_accum[16];
                    #pragma unroll
                    for (int e = 0; e < 16; ++e) block_accum[e] = accum[s * TAP_ACCUMS + i * 16 + e];
                    if (SPLIT_K && work.split_block >= 0)
                        store_partials(p, work.split, ((work.split_block * TAPS_H + r) * TAPS_W + s) * (CHANNELS / 32) + i, block_accum);
                    else epilogue_store<1>(p, WorkTile{}, coords, column_block_in_slab(work, i), block_accum);
                }
            }
        }
    }
}
