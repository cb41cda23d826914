// Convolutions of unit stride for sm_90a, implicit GEMM by wgmma: a halo tile of the image is loaded once for all taps.
//
//   y[n, h, w, k] = sum over r, s, c of x[n, h + r * DILATION_H - pad_h, w + s * DILATION_W - pad_w, c] * filter[k, r, s, c]
//
// Tile:       pixels are the rows of the GEMM and channels its columns. Each consumer warpgroup has MMA_TILES_M times 64 pixels, of
//             HALO_TILES halo tiles, by TILE_N channels. A K block is PIXEL_BYTES of channels; A of a tap is a descriptor offset.
// Layout:     halo_tile.cuh: halo tiles, then filters, then the residual's boxes, then barriers.
// Pipeline:   WEIGHT_STATIONARY: all filters are loaded once, and each consumer has its own pipeline of STAGES halo tiles.
//             Otherwise a pipeline of STAGES stages holds the halo tiles of all consumers, and a second one of FILTER_STAGES holds
//             the filters, tap by tap. An elected thread's TMA bytes complete `full`, an arrival of each consumer completes `empty`.
// Warp roles: warpgroup 0 produces. WEIGHT_STATIONARY: one warp for each consumer. Otherwise warp 0 loads filters and the residual,
//             warp 1 loads halo tiles, and the other two prefetch the epilogue's operands into L2 (PREFETCH_ELEMENTS > 0).
//             The other warpgroups issue wgmma SS and run the epilogue.
// Depth:      with three axes, the slices of the image follow each other as K blocks. DEPTH_SLICES > 1: one MMA multiplies a slice
//             of the image for all output slices that read it; their accumulators lie side by side and move on by one with each slice.
// Epilogue:   generated operations in registers, then direct stores; a residual may come by TMA (hopper_halo_residual.cuh).
//
// Required constants, besides those of halo_tile.cuh and epilogue_store.cuh:
//   SPLIT_LAST_TAP       the last tap of each K block is committed for the first 64 pixels ahead of the others, so that the epilogue
//                        of the first overlaps the last MMA of the others
//   FIXED_COLUMN_TILE    a CTA has the same columns in all its work items
//   PREFETCH_ELEMENTS    elements that one L2 prefetch brings, 0 without prefetch
//   PRODUCER_REGS        registers of a producer thread, a multiple of 8, 24 to 240
//
// Variants (from the generator): RESIDUAL_TILE: 1: TMA loads a residual for the epilogue.

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "halo_tile.cuh"
#if RESIDUAL_TILE
#include "hopper_halo_residual.cuh"
#else
#include "hopper_halo_no_residual.cuh"
#endif

// One tap of a K block for all MMA tiles; `offset`: rows from the halo tile's first pixel to the tap's. scale_d 0 overwrites.
template <int STEPS, int COUNT>
__device__ __forceinline__ void mma_steps(Accum (&accum)[COUNT][ALL_ACCUMS], smem_desc_t a, smem_desc_t b, int offset, int scale_d) {
    #pragma unroll
    for (int k = 0; k < STEPS; ++k)
        #pragma unroll
        for (int j = 0; j < COUNT; ++j)
            wgmma_ss(accum[j], a + (first_row(j) + offset) * (PIXEL_BYTES >> 4) + k * DESC_STEP_K<false>, b + k * FILTER_DESC_STEP_K, k == 0 ? scale_d : 1);
}

template <int COUNT>
__device__ __forceinline__ void mma_tap(Accum (&accum)[COUNT][ALL_ACCUMS], smem_desc_t a, smem_desc_t b, int offset, bool is_tail, int scale_d) {
    if (TAIL_MMA_STEPS == 4 || !is_tail) mma_steps<4>(accum, a, b, offset, scale_d);
    else mma_steps<TAIL_MMA_STEPS>(accum, a, b, offset, scale_d);
}

// SPLIT_LAST_TAP: the last tap of a K block is multiplied for MMA tile 0, then for tile 1, so that the epilogue of the first overlaps
// the MMAs of the second.
static_assert(!SPLIT_LAST_TAP || (!WEIGHT_STATIONARY && MMA_TILES_M == 2 && RESIDUAL_BYTES == 0), "two MMA tiles of a streamed filter");

template <int J, int COUNT>
__device__ __forceinline__ void mma_tap_of_tile(Accum (&accum)[COUNT][ALL_ACCUMS], smem_desc_t a, smem_desc_t b, int offset, bool is_tail) {
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        if (k < TAIL_MMA_STEPS || !is_tail)
            wgmma_ss(accum[J], a + (first_row(J) + offset) * (PIXEL_BYTES >> 4) + k * DESC_STEP_K<false>, b + k * FILTER_DESC_STEP_K, 1);
}

// Column operands (bias, scale) stay in registers where a CTA's columns are fixed and registers suffice.
constexpr int OPERAND_REGISTERS = TILE_N / 32 * (int)sizeof(EpilogueOperands) / 4;
constexpr bool KEEPS_OPERANDS = FIXED_COLUMN_TILE && RESIDUAL_BYTES == 0 && SPARE_REGISTERS && MMA_TILES_M * ACCUMS + OPERAND_REGISTERS + 40 <= CONSUMER_REGS;

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int k_blocks = halo_k_blocks(p);
    const smem_addr_t halo_tiles = smem_addr(memory), filters = halo_tiles + CONSUMER_WARPGROUPS * HALO_TILES * STAGES * HALO_TILE_BYTES;
    const smem_addr_t residual = filters + (WEIGHT_STATIONARY ? TAPS * filter_k_blocks(p) : FILTER_STAGES) * TAP_BYTES, full = residual + RESIDUAL_BYTES;
    const smem_addr_t empty = full + 8 * HALO_PIPELINES * STAGES, filter_full = empty + 8 * HALO_PIPELINES * STAGES;
    const smem_addr_t filter_empty = filter_full + 8 * FILTER_STAGES, residual_barriers = filter_empty + 8 * FILTER_STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<HALO_PIPELINES * STAGES>(full, empty, EMPTY_ARRIVALS);
        init_pipeline<FILTER_STAGES>(filter_full, filter_empty, CONSUMER_WARPGROUPS);  // stationary filters have one stage and use `full` alone
        init_residual_barriers(residual_barriers);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    pdl_wait();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tiles_n = (int)p.tiles_n, count = (int)p.halo_tiles;
    const int items = WEIGHT_STATIONARY ? count : (count + HALO_TILES_PER_STAGE - 1) / HALO_TILES_PER_STAGE * tiles_n;
    PipelineState<STAGES> pipe;
    [[maybe_unused]] PipelineState<FILTER_STAGES> filter_pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if constexpr (WEIGHT_STATIONARY) {
            if (warp < CONSUMER_WARPGROUPS && elect_one()) {  // one warp loads the halo tiles of one consumer
                if (warp == 0) load_stationary_filters(p, filters, filter_full);
                #pragma unroll 1
                for (int halo_tile = blockIdx.x + gridDim.x * warp; halo_tile < count; halo_tile += gridDim.x * CONSUMER_WARPGROUPS) {
                    const HaloTileCoord coord = decode_halo_tile(p, halo_tile);
                    KBlock k_block;
                    for (int index = 0; index < k_blocks; ++index, k_block.advance(p)) {
                        const int stage = warp * STAGES + pipe.stage;
                        mbarrier_wait_parity(empty + 8 * stage, pipe.phase ^ 1);
                        mbarrier_expect_tx(full + 8 * stage, HALO_LOAD_BYTES);
                        load_halo_tile(p, halo_tiles + stage * HALO_TILE_BYTES, full + 8 * stage, k_block, coord);
                        pipe.advance();
                    }
                }
            }
        } else {
            if (warp == 0 && elect_one()) {
                ResidualLoader residual_loader(residual, residual_barriers);
                #pragma unroll 1
                for (int item = blockIdx.x; item < items; item += gridDim.x) {
                    residual_loader.begin(item / tiles_n * HALO_TILES_PER_STAGE, item % tiles_n * TILE_N);
                    KBlock k_block;
                    for (int index = 0; index < k_blocks; ++index, k_block.advance(p))
                        #pragma unroll 1
                        for (int tap = 0; tap < TAPS; ++tap) {
                            mbarrier_wait_parity(filter_empty + 8 * filter_pipe.stage, filter_pipe.phase ^ 1);
                            mbarrier_expect_tx(filter_full + 8 * filter_pipe.stage, TAP_BYTES);
                            load_filter_tap(
                                p, filters + filter_pipe.stage * TAP_BYTES, filter_full + 8 * filter_pipe.stage, k_block, tap, item % tiles_n * TILE_N
                            );
                            filter_pipe.advance();
                            residual_loader.after_tap(p, index * TAPS + tap, k_blocks / 2 * TAPS);
                        }
                    residual_loader.finish(p);
                }
            }
            const auto load_halo_stages = [&](int item) {
                KBlock k_block;
                for (int index = 0; index < k_blocks; ++index, k_block.advance(p)) {
                    mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                    mbarrier_expect_tx(full + 8 * pipe.stage, HALO_TILES_PER_STAGE * HALO_LOAD_BYTES);
                    #pragma unroll
                    for (int i = 0; i < HALO_TILES_PER_STAGE; ++i)  // a tile beyond the last image is zeros
                        load_halo_tile(
                            p, halo_tiles + (pipe.stage * HALO_TILES_PER_STAGE + i) * HALO_TILE_BYTES, full + 8 * pipe.stage, k_block,
                            decode_halo_tile(p, item / tiles_n * HALO_TILES_PER_STAGE + i)
                        );
                    pipe.advance();
                }
            };
            if constexpr (PREFETCH_ELEMENTS == 0) {
                if (warp == 1 && elect_one()) {
                    #pragma unroll 1
                    for (int item = blockIdx.x; item < items; item += gridDim.x) load_halo_stages(item);
                }
            } else if (warp >= 1) {
                #pragma unroll 1
                for (int item = blockIdx.x; item < items; item += gridDim.x) {
                    named_barrier_sync<96>();  // no tile's operands are prefetched before its loads are due
                    if (warp == 1) {
                        if (elect_one()) load_halo_stages(item);
                        __syncwarp();
                    } else {
                        #pragma unroll 1
                        for (int i = 0; i < HALO_TILES_PER_STAGE; ++i)
                            prefetch_epilogue_operands(p, item / tiles_n * HALO_TILES_PER_STAGE + i, item % tiles_n * TILE_N);
                    }
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1;
        const bool releases = threadIdx.x % 128 == 0;
        const int first_item = WEIGHT_STATIONARY ? (int)(blockIdx.x + gridDim.x * consumer) : (int)blockIdx.x;
        const int stride = WEIGHT_STATIONARY ? (int)gridDim.x * CONSUMER_WARPGROUPS : (int)gridDim.x;
        const int ring = WEIGHT_STATIONARY ? consumer * STAGES : 0;
        if (WEIGHT_STATIONARY) mbarrier_wait_parity(filter_full, 0);
        Accum accum[MMA_TILES_M][ALL_ACCUMS];
        const auto clear = [&] {
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j)
                #pragma unroll
                for (int i = 0; i < ALL_ACCUMS; ++i) accum[j][i] = 0;
        };
        clear();
        [[maybe_unused]] int residual_phase = 0;
        EpilogueOperands operands[TILE_N / 32];
        if constexpr (KEEPS_OPERANDS) {
            pdl_wait();
            WorkTile tile{};
            tile.tile_n = WEIGHT_STATIONARY ? 0 : first_item % tiles_n;
            const RowCoords any_rows = halo_row_coords(p, 0, 0);
            #pragma unroll
            for (int block = 0; block < TILE_N / 32; ++block) load_epilogue_operands(p, fragment_slice(p, tile, any_rows, block, 0), operands[block]);
        }
        // Stores the first of the output slices side by side, which is complete; the others move on to its place, and a new one begins.
        [[maybe_unused]] const auto store_depth_slice = [&](const RowCoords (&first_rows)[MMA_TILES_M], int slice) {
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j) {
                fence_accumulators(accum[j]);
                const RowCoords rows = depth_slice_coords(p, first_rows[j], slice);
                if (slice >= 0)
                    #pragma unroll
                    for (int block = 0; block < TILE_N / 32; ++block)
                        store_column_block(p, WorkTile{}, rows, block, accum[j] + block * 16, operands[block], KEEPS_OPERANDS, [](EpilogueOperands&, int, int) {});
                #pragma unroll
                for (int i = 0; i < ALL_ACCUMS; ++i) accum[j][i] = i + ACCUMS < ALL_ACCUMS ? accum[j][i + ACCUMS] : 0;
            }
        };
        #pragma unroll 1
        for (int item = first_item; item < items; item += stride) {
            WorkTile tile{};
            tile.tile_n = WEIGHT_STATIONARY ? 0 : item % tiles_n;
            const int halo_tile = WEIGHT_STATIONARY ? item : item / tiles_n * HALO_TILES_PER_STAGE + consumer * HALO_TILES;
            if constexpr (!CLEAR_BY_SCALE_D) clear();
            int unreleased = -1;
            [[maybe_unused]] int unreleased_filter = -1;
            ResidualFragment residual_fragment;
            [[maybe_unused]] RowCoords first_rows[MMA_TILES_M];
            if constexpr (DEPTH_SLICES > 1)
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) first_rows[j] = halo_row_coords(p, halo_tile, j);
            KBlock k_block;
            int index = 0;
            #pragma unroll 1
            do {
                const int stage = ring + pipe.stage;
                const bool is_tail_block = is_tail(p, k_block);
                mbarrier_wait_parity(full + 8 * stage, pipe.phase);
                const smem_desc_t a = halo_desc(halo_tiles + (WEIGHT_STATIONARY ? stage : stage * HALO_TILES_PER_STAGE + consumer * HALO_TILES) * HALO_TILE_BYTES);
                if constexpr (WEIGHT_STATIONARY) {
                    const int filter_block = DEPTH_SLICES == 1 ? index : k_block.channel_block;
                    const smem_desc_t b = filter_desc(filters + filter_block * (TAPS * DEPTH_SLICES * TAP_BYTES));
                    #pragma unroll
                    for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(accum[j]);
                    wgmma_fence();
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s)
                            mma_tap(
                                accum, a, b + (r * TAPS_W + s) * (DEPTH_SLICES * TAP_BYTES >> 4), r * DILATION_H * HALO_W + s * DILATION_W, is_tail_block,
                                CLEAR_BY_SCALE_D && r == 0 && s == 0 ? index : 1
                            );
                    wgmma_commit();
                    if constexpr (DEPTH_SLICES > 1) {
                        wgmma_wait<0>();
                        if (releases) mbarrier_arrive(empty + 8 * stage);
                        if (is_tail_block) store_depth_slice(first_rows, k_block.slice - (DEPTH_SLICES - 1));
                    } else {
                        wgmma_wait<1>();
                        if (unreleased >= 0 && releases) mbarrier_arrive(empty + 8 * unreleased);
                    }
                } else {
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s) {
                            mbarrier_wait_parity(filter_full + 8 * filter_pipe.stage, filter_pipe.phase);
                            const smem_desc_t b = filter_desc(filters + filter_pipe.stage * TAP_BYTES);
                            #pragma unroll
                            for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(accum[j]);
                            wgmma_fence();
                            const int offset = r * DILATION_H * HALO_W + s * DILATION_W;
                            if constexpr (SPLIT_LAST_TAP)
                                if (r == TAPS_H - 1 && s == TAPS_W - 1) mma_tap_of_tile<0>(accum, a, b, offset, is_tail_block);
                                else mma_tap(accum, a, b, offset, is_tail_block, 1);
                            else mma_tap(accum, a, b, offset, is_tail_block, 1);
                            wgmma_commit();
                            if (RESIDUAL_BYTES > 0 && r == 0 && s == 0 && index == k_blocks / 2) {
                                wgmma_wait<0>();
                                residual_fragment.template load<true>(memory + (residual - halo_tiles), residual_barriers, consumer, residual_phase);
                            } else {
                                wgmma_wait<1>();
                            }
                            // The MMAs of the previous tap are complete, so its stages are free.
                            if (unreleased_filter >= 0 && releases) mbarrier_arrive(filter_empty + 8 * unreleased_filter);
                            if (r == 0 && s == 0 && unreleased >= 0 && releases) mbarrier_arrive(empty + 8 * unreleased);
                            unreleased_filter = filter_pipe.stage;
                            filter_pipe.advance();
                        }
                    if constexpr (SPLIT_LAST_TAP) {
                        wgmma_fence();
                        const smem_desc_t b = filter_desc(filters + unreleased_filter * TAP_BYTES);
                        mma_tap_of_tile<1>(accum, a, b, (TAPS_H - 1) * DILATION_H * HALO_W + (TAPS_W - 1) * DILATION_W, is_tail_block);
                        wgmma_commit();
                    }
                }
                unreleased = stage;
                pipe.advance();
                k_block.advance(p);
            } while (++index < k_blocks);
            if constexpr (DEPTH_SLICES > 1) {
                if (item + stride >= items) pdl_trigger();
                continue;
            }
            residual_fragment.template load<false>(memory + (residual - halo_tiles), residual_barriers, consumer, residual_phase);
            RowCoords rows[MMA_TILES_M];
            if constexpr (KEEPS_OPERANDS && !WEIGHT_STATIONARY)  // while the last MMAs run
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) rows[j] = halo_row_coords(p, halo_tile + j / MMA_TILES_PER_HALO_TILE, j % MMA_TILES_PER_HALO_TILE);
            const auto finish_mainloop = [&] {
                wgmma_wait<0>();
                if (item + stride >= items) pdl_trigger();
                #pragma unroll
                for (int j = SPLIT_LAST_TAP; j < MMA_TILES_M; ++j) fence_accumulators(accum[j]);
                if (releases) {
                    mbarrier_arrive(empty + 8 * unreleased);
                    if constexpr (!WEIGHT_STATIONARY) mbarrier_arrive(filter_empty + 8 * unreleased_filter);
                }
            };
            if constexpr (SPLIT_LAST_TAP) {
                wgmma_wait<1>();
                fence_accumulators(accum[0]);
            } else {
                finish_mainloop();
            }
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j) {
                if (SPLIT_LAST_TAP && j == 1) finish_mainloop();
                if constexpr (!KEEPS_OPERANDS || WEIGHT_STATIONARY) rows[j] = halo_row_coords(p, halo_tile + j / MMA_TILES_PER_HALO_TILE, j % MMA_TILES_PER_HALO_TILE);
                #pragma unroll
                for (int block = 0; block < TILE_N / 32; ++block)
                    store_column_block(
                        p, tile, rows[j], block, accum[j] + block * 16, operands[block], KEEPS_OPERANDS,
                        [&](EpilogueOperands& operands, int block, int h) { residual_fragment.copy_to(operands, j, block, h); }
                    );
            }
        }
    }
}
