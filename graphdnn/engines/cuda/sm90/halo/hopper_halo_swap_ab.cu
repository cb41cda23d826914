// Convolutions of unit stride for sm_90a with swapped operands: filters are the rows of the GEMM, pixels its columns.
//
//   y[n, h, w, k] = sum over r, s, c of filter[k, r, s, c] * x[n, h + r * DILATION_H - pad_h, w + s * DILATION_W - pad_w, c]
//
// Tile:       a CTA has one halo tile of TILE_H image rows by 8 pixels, and 64 channels for each consumer warpgroup. One MMA multiplies
//             all TILE_N pixels, so fewer bytes of shared memory are read for each multiply-add than with pixels as rows.
// Layout:     halo_tile.cuh: halo tiles, then filters, then barriers. TMA permutes the filters of 16 channels (PERMUTE_N), so that the
//             two rows of a lane are adjacent channels.
// Pipeline:   STAGES stages of halo tiles are shared by the consumers; each consumer has FILTER_STAGES stages of filters of its own.
//             TMA bytes complete `full`, an arrival of each consumer completes `empty`.
// Warp roles: warp i of warpgroup 0 loads the filters of consumer i, the next warp loads halo tiles. The other warpgroups issue
//             wgmma SS. All consumers but the first start one K block late, so that one's epilogue overlaps another's main loop.
// Epilogue:   generated operations on pairs of adjacent channels, then direct stores.
//
// Required constants, besides those of halo_tile.cuh and epilogue_store.cuh:
//   FIXED_COLUMN_TILE    1 if a CTA has the same channels in all its work items
//   PREFETCH_ELEMENTS    elements of an L2 prefetch, 0 without prefetch
//   PRODUCER_REGS        registers of a producer thread, a multiple of 8, 24 to 240

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "epilogue_store.cuh"
#include "halo_tile.cuh"

constexpr int FILTER_STAGE_BYTES = TAP_BYTES / CONSUMER_WARPGROUPS;  // filters of one tap and consumer
static_assert(SWAP_AB && PERMUTE_N && !FILTER_MN_MAJOR && !FLAT_ROWS && TILE_W == 8 && TILE_H * TILE_W == TILE_N, "image rows of 8 pixels");
static_assert(
    MMA_TILES_M == 1 && HALO_TILES == 1 && DEPTH_SLICES == 1 && !WEIGHT_STATIONARY && CONSUMER_WARPGROUPS <= 3,
    "64 channels, and a filter warp for each consumer beside the halo tiles' warp"
);

struct Smem { smem_addr_t halo_tiles, filters, full, empty, filter_full, filter_empty, first_started; };

__device__ __forceinline__ Smem partition_smem(const unsigned char* memory) {
    Smem smem;
    smem.halo_tiles = smem_addr(memory);
    smem.filters = smem.halo_tiles + STAGES * HALO_TILE_BYTES;
    smem.full = smem.filters + FILTER_STAGES * TAP_BYTES;
    smem.empty = smem.full + 8 * STAGES;
    smem.filter_full = smem.empty + 8 * STAGES;
    smem.filter_empty = smem.filter_full + 8 * CONSUMER_WARPGROUPS * FILTER_STAGES;
    smem.first_started = smem.filter_empty + 8 * CONSUMER_WARPGROUPS * FILTER_STAGES;
    return smem;
}

template <int STEPS> __device__ __forceinline__ void mma_steps(Accum (&accum)[ACCUMS], smem_desc_t a, smem_desc_t b, int scale_d) {
    #pragma unroll
    for (int k = 0; k < STEPS; ++k) wgmma_ss(accum, a + k * DESC_STEP_K<false>, b + k * DESC_STEP_K<false>, k == 0 ? scale_d : 1);
}

// The result coordinates of a lane's two adjacent channels; one epilogue call handles VEC_WIDTH of them.
struct ChannelPair { int coord[EPILOGUE_CALLS_PER_PAIR][6]; bool is_inside[EPILOGUE_CALLS_PER_PAIR]; };

__device__ __forceinline__ ChannelPair load_channel_pair(const Params& p, int channel, EpilogueOperands& operands) {
    ChannelPair pair;
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) pair.coord[i][d] = 0;
        pair.is_inside[i] = channel + i < (int)p.columns;
        pair.coord[i][2] = pair.is_inside[i] ? channel + i : 0;
        load_column_operands(p, pair.coord[i], operands.columns[i]);
    }
    return pair;
}

__device__ __forceinline__ void producer(const Params& p, const Smem& smem, int items, int tiles_n, int k_blocks, int warp) {
    PipelineState<STAGES> pipe;
    PipelineState<FILTER_STAGES> filter_pipe;
    #pragma unroll 1
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        KBlock k_block;
        if (warp == CONSUMER_WARPGROUPS) {
            const HaloTileCoord coord = decode_halo_tile(p, item / tiles_n);
            #pragma unroll 1
            for (int index = 0; index < k_blocks; ++index, k_block.advance(p)) {
                mbarrier_wait_parity(smem.empty + 8 * pipe.stage, pipe.phase ^ 1);
                mbarrier_expect_tx(smem.full + 8 * pipe.stage, HALO_LOAD_BYTES);
                load_halo_tile(p, smem.halo_tiles + pipe.stage * HALO_TILE_BYTES, smem.full + 8 * pipe.stage, k_block, coord);
                pipe.advance();
            }
        } else {
            #pragma unroll 1
            for (int index = 0; index < k_blocks; ++index, k_block.advance(p))
                #pragma unroll 1
                for (int tap = 0; tap < TAPS; ++tap) {
                    const int stage = warp * FILTER_STAGES + filter_pipe.stage;
                    mbarrier_wait_parity(smem.filter_empty + 8 * stage, filter_pipe.phase ^ 1);
                    mbarrier_expect_tx(smem.filter_full + 8 * stage, FILTER_STAGE_BYTES);
                    load_filter_tap(
                        p, smem.filters + stage * FILTER_STAGE_BYTES, smem.filter_full + 8 * stage, k_block, tap,
                        item % tiles_n * TILE_M + 64 * warp
                    );
                    filter_pipe.advance();
                }
        }
    }
}

__device__ __forceinline__ void consumer_warpgroup(
    const Params& p, const Smem& smem, int items, int tiles_n, int k_blocks, int consumer, int warp
) {
    const int first_stage = consumer * FILTER_STAGES, lane = (int)threadIdx.x % 32;
    const bool releases = threadIdx.x % 128 == 0;
    const int channel_in_tile = 64 * consumer + 16 * warp + lane / 4 * 2;  // the first of a lane's pair
    PipelineState<STAGES> pipe;
    PipelineState<FILTER_STAGES> filter_pipe;
    Accum accum[ACCUMS];
    #pragma unroll
    for (int i = 0; i < ACCUMS; ++i) accum[i] = 0;
    EpilogueOperands operands;
    ChannelPair pair{};
    if constexpr (FIXED_COLUMN_TILE) pair = load_channel_pair(p, (int)blockIdx.x % tiles_n * TILE_M + channel_in_tile, operands);
    if (consumer > 0) mbarrier_wait_parity(smem.first_started, 0);
    #pragma unroll 1
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        if constexpr (!FIXED_COLUMN_TILE) pair = load_channel_pair(p, item % tiles_n * TILE_M + channel_in_tile, operands);
        int unreleased = -1, unreleased_filter = -1;
        KBlock k_block;
        #pragma unroll 1
        for (int index = 0; index < k_blocks; ++index, k_block.advance(p)) {
            const bool is_tail_block = is_tail(p, k_block);
            mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);
            const smem_desc_t b = halo_desc(smem.halo_tiles + pipe.stage * HALO_TILE_BYTES);
            #pragma unroll
            for (int r = 0; r < TAPS_H; ++r)
                #pragma unroll
                for (int s = 0; s < TAPS_W; ++s) {
                    const int stage = first_stage + filter_pipe.stage;
                    mbarrier_wait_parity(smem.filter_full + 8 * stage, filter_pipe.phase);
                    const smem_desc_t a = filter_desc(smem.filters + stage * FILTER_STAGE_BYTES);
                    const smem_desc_t tap_b = b + (r * DILATION_H * HALO_W + s * DILATION_W) * (PIXEL_BYTES >> 4);
                    const int scale_d = r == 0 && s == 0 ? index : 1;  // 0: the first MMA of a tile overwrites the accumulators
                    fence_accumulators(accum);
                    wgmma_fence();
                    if (TAIL_MMA_STEPS == 4 || !is_tail_block) mma_steps<4>(accum, a, tap_b, scale_d);
                    else mma_steps<TAIL_MMA_STEPS>(accum, a, tap_b, scale_d);
                    wgmma_commit();
                    wgmma_wait<1>();
                    // The MMAs of the previous tap are complete, so its stages are free.
                    if (unreleased_filter >= 0 && releases) mbarrier_arrive(smem.filter_empty + 8 * (first_stage + unreleased_filter));
                    if (r == 0 && s == 0 && unreleased >= 0 && releases) mbarrier_arrive(smem.empty + 8 * unreleased);
                    unreleased_filter = filter_pipe.stage;
                    filter_pipe.advance();
                }
            // The first consumer has its first K block behind it, and the others start. This is the only such wait.
            if (CONSUMER_WARPGROUPS > 1 && index == 0 && item == (int)blockIdx.x && threadIdx.x == 128) mbarrier_arrive(smem.first_started);
            unreleased = pipe.stage;
            pipe.advance();
        }
        const HaloTileCoord coord = decode_halo_tile(p, item / tiles_n);
        wgmma_wait<0>();
        if (item + (int)gridDim.x >= items) pdl_trigger();
        fence_accumulators(accum);
        if (releases) {
            mbarrier_arrive(smem.empty + 8 * unreleased);
            mbarrier_arrive(smem.filter_empty + 8 * (first_stage + unreleased_filter));
        }
        // For the two pixels of a lane in an image row: the rows of the image that are stored, none for a pixel outside.
        const int w = coord.w + lane % 4 * 2, height = (int)p.pixels[1], width = (int)p.pixels[2];
        int stored_rows[2][EPILOGUE_CALLS_PER_PAIR];
        #pragma unroll
        for (int n = 0; n < 2; ++n)
            #pragma unroll
            for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) stored_rows[n][i] = w + n < width && pair.is_inside[i] ? height : 0;
        #pragma unroll
        for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) pair.coord[i][0] = coord.n, pair.coord[i][3] = coord.d;
        #pragma unroll
        for (int n = 0; n < ACCUMS / 2; ++n) {  // a pixel outside reads the operands of the last one inside, and is not stored
            const int h = coord.h + n / 2;
            const Accum both[2] = {accum[n / 2 * 4 + n % 2], accum[n / 2 * 4 + n % 2 + 2]};
            #pragma unroll
            for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
                Accum acc[VEC_WIDTH];
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = both[i * VEC_WIDTH + e];
                pair.coord[i][4] = min(h, height - 1);
                pair.coord[i][5] = min(w + n % 2, width - 1);
                epilogue(p, pair.coord[i], operands.columns[i], acc, h < stored_rows[n % 2][i]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo_swap_ab(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int k_blocks = halo_k_blocks(p);
    const Smem smem = partition_smem(memory);
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(smem.full, smem.empty, CONSUMER_WARPGROUPS);
        init_pipeline<CONSUMER_WARPGROUPS * FILTER_STAGES>(smem.filter_full, smem.filter_empty, 1);
        mbarrier_init(smem.first_started, 1);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    pdl_wait();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tiles_n = (int)p.tiles_n, items = (int)p.halo_tiles * tiles_n;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp > CONSUMER_WARPGROUPS || !elect_one()) return;
        producer(p, smem, items, tiles_n, k_blocks, warp);
    } else {
        alloc_registers<CONSUMER_REGS>();
        consumer_warpgroup(p, smem, items, tiles_n, k_blocks, warpgroup - 1, warp);
    }
}
