// Convolutions of unit stride on the tensor cores of compute capability 9.0, each piece of the image copied once for all taps.
//
// A consumer has a patch of TALL x WIDE pixels of the result. The pixels that its taps reach lie in shared memory as rows
// of PATCH_ROW bytes of channels, PITCH pixels from one line of the image to the next, zeros around the image; a tap reads them
// `shift` pixels further on, for swizzled rows are found by their address alone. 64 rows of a product are
//   8 x 8 pixels: eights of neighbours, PITCH apart                      (LINEAR false)
//   64 pixels that follow each other, those between two lines for nobody (LINEAR true)
// Of three axes, slices of the image are read one after the other. STAGE_K: each is multiplied once for all slices of the result
// that it meets, whose sums lie side by side: a patch has a run of slices of the result then, and reads STAGE_K - 1 more.
//
// RESIDENT: filters stay in shared memory, and consumers go their own ways, each with a ring of patches. Otherwise filters
// come tap by tap through a ring of FILTERS stages, and a stage of the other ring holds PATCHES for each consumer. A residual
// may come beside them (hopper_halo_residual.cuh).

// The last 128 bytes of channels may be filled in part only; what lies beyond is zeros in the image.
template <int SLICES, int COUNT>
__device__ __forceinline__ void multiply_slices(Accum (&sum)[COUNT][ALL_SUMS], smem_desc_t a, smem_desc_t b, int shift, int add) {
    #pragma unroll
    for (int k = 0; k < SLICES; ++k)
        #pragma unroll
        for (int j = 0; j < COUNT; ++j)
            wgmma_ss(sum[j], a + (first_of(j) + shift) * (PATCH_ROW >> 4) + k * DESC_STEP_K<false>, b + k * NEXT_B, k == 0 ? add : 1);
}

template <int COUNT>
__device__ __forceinline__ void multiply_tap(Accum (&sum)[COUNT][ALL_SUMS], smem_desc_t a, smem_desc_t b, int shift, bool is_last, int add) {
    if (LAST_SLICES == 4 || !is_last) multiply_slices<4>(sum, a, b, shift, add);
    else multiply_slices<LAST_SLICES>(sum, a, b, shift, add);
}

// LATE: the last tap of a block of channels is multiplied for a consumer's first 64 pixels, then for the others, so that the first
// results leave while those of the others become complete.
static_assert(!LATE || (!RESIDENT && MMA_TILES_M == 2 && RESIDUAL_BYTES == 0), "halves of a ring");

template <int J, int COUNT>
__device__ __forceinline__ void multiply_half(Accum (&sum)[COUNT][ALL_SUMS], smem_desc_t a, smem_desc_t b, int shift, bool is_last) {
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        if (k < LAST_SLICES || !is_last)
            wgmma_ss(sum[J], a + (first_of(J) + shift) * (PATCH_ROW >> 4) + k * DESC_STEP_K<false>, b + k * NEXT_B, 1);
}

// What the epilogue reads for a lane's columns stays in registers where these are a block's only ones, and suffice.
constexpr int KEPT = TILE_N / 32 * (int)sizeof(EpilogueOperands) / 4;
constexpr bool KEEPS_ALL = STAYS && RESIDUAL_BYTES == 0 && SPARE_REGISTERS && MMA_TILES_M * ACCUMS + KEPT + 40 <= CONSUMER_REGS;

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int blocks = blocks_of(p);
    const smem_addr_t patches = smem_addr(memory), filters = patches + CONSUMER_WARPGROUPS * PATCHES * STAGES * PATCH_BYTES;
    const smem_addr_t residual = filters + (RESIDENT ? TAPS * filter_blocks_of(p) : FILTERS) * B_BYTES, full = residual + RESIDUAL_BYTES;
    const smem_addr_t empty = full + 8 * RINGS * STAGES, full_filter = empty + 8 * RINGS * STAGES;
    const smem_addr_t empty_filter = full_filter + 8 * FILTERS, barriers = empty_filter + 8 * FILTERS;
    if (threadIdx.x == 0) {
        init_pipeline<RINGS * STAGES>(full, empty, LEAVING);
        init_pipeline<FILTERS>(full_filter, empty_filter, CONSUMER_WARPGROUPS);  // one where filters are resident: only `full` is used
        begin_residual(barriers);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    pdl_wait();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int columns = (int)p.tiles_n, count = (int)p.patches;
    const int pieces = RESIDENT ? count : (count + IN_STAGE - 1) / IN_STAGE * columns;
    PipelineState<STAGES> pipe;
    [[maybe_unused]] PipelineState<FILTERS> next;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if constexpr (RESIDENT) {
            if (warp < CONSUMER_WARPGROUPS && elect_one()) {  // a warp for each consumer
                if (warp == 0) copy_filters(p, filters, full_filter);
                #pragma unroll 1
                for (int patch = blockIdx.x + gridDim.x * warp; patch < count; patch += gridDim.x * CONSUMER_WARPGROUPS) {
                    const Corner corner = corner_of(p, patch);
                    PatchBlock from;
                    for (int block = 0; block < blocks; ++block, from.advance(p)) {
                        const int stage = warp * STAGES + pipe.stage;
                        mbarrier_wait_parity(empty + 8 * stage, pipe.phase ^ 1);
                        mbarrier_expect_tx(full + 8 * stage, LANDING);
                        copy_patch(p, patches + stage * PATCH_BYTES, full + 8 * stage, from, corner);
                        pipe.advance();
                    }
                }
            }
        } else {
            if (warp == 0 && elect_one()) {
                ResidualCopies copies(residual, barriers);
                #pragma unroll 1
                for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
                    copies.begin(piece / columns * IN_STAGE, piece % columns * TILE_N);
                    PatchBlock from;
                    for (int block = 0; block < blocks; ++block, from.advance(p))
                        #pragma unroll 1
                        for (int tap = 0; tap < TAPS; ++tap) {
                            mbarrier_wait_parity(empty_filter + 8 * next.stage, next.phase ^ 1);
                            mbarrier_expect_tx(full_filter + 8 * next.stage, B_BYTES);
                            copy_filter(
                                p, filters + next.stage * B_BYTES, full_filter + 8 * next.stage, from, tap, piece % columns * TILE_N
                            );
                            next.advance();
                            copies.step(p, block * TAPS + tap, blocks / 2 * TAPS);
                        }
                    copies.end(p);
                }
            }
            const auto copy_patches = [&](int piece) {
                PatchBlock from;
                for (int block = 0; block < blocks; ++block, from.advance(p)) {
                    mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                    mbarrier_expect_tx(full + 8 * pipe.stage, IN_STAGE * LANDING);
                    #pragma unroll
                    for (int i = 0; i < IN_STAGE; ++i)  // beyond the last image: zeros
                        copy_patch(
                            p, patches + (pipe.stage * IN_STAGE + i) * PATCH_BYTES, full + 8 * pipe.stage, from,
                            corner_of(p, piece / columns * IN_STAGE + i)
                        );
                    pipe.advance();
                }
            };
            if constexpr (FETCHED == 0) {
                if (warp == 1 && elect_one()) {
                    #pragma unroll 1
                    for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) copy_patches(piece);
                }
            } else if (warp >= 1) {
                #pragma unroll 1
                for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
                    named_barrier_sync<96>();  // a patch is not fetched before its copies are due
                    if (warp == 1) {
                        if (elect_one()) copy_patches(piece);
                        __syncwarp();
                    } else {
                        #pragma unroll 1
                        for (int i = 0; i < IN_STAGE; ++i)
                            fetch_patch(p, piece / columns * IN_STAGE + i, piece % columns * TILE_N);
                    }
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1;
        const bool is_first = threadIdx.x % 128 == 0;
        const int from = RESIDENT ? (int)(blockIdx.x + gridDim.x * consumer) : (int)blockIdx.x;
        const int pace = RESIDENT ? (int)gridDim.x * CONSUMER_WARPGROUPS : (int)gridDim.x;
        const int ring = RESIDENT ? consumer * STAGES : 0;
        if (RESIDENT) mbarrier_wait_parity(full_filter, 0);
        Accum sum[MMA_TILES_M][ALL_SUMS];
        const auto clear = [&] {
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j)
                #pragma unroll
                for (int i = 0; i < ALL_SUMS; ++i) sum[j][i] = 0;
        };
        clear();
        [[maybe_unused]] int phase = 0;  // of the residual
        EpilogueOperands held[TILE_N / 32];
        if constexpr (KEEPS_ALL) {
            pdl_wait();
            WorkTile w{};
            w.tile_n = RESIDENT ? 0 : from % columns;
            const RowCoords any = rows_of_patch(p, 0, 0);
            #pragma unroll
            for (int block = 0; block < TILE_N / 32; ++block) load_epilogue_operands(p, fragment_slice(p, w, any, block, 0), held[block]);
        }
        // The first of the slices side by side has met all that it is a sum of; the others move on, and another one begins.
        [[maybe_unused]] const auto leave_slice = [&](const RowCoords (&first)[MMA_TILES_M], int slice) {
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j) {
                fence_accumulators(sum[j]);
                const RowCoords rows = rows_of_slice(p, first[j], slice);
                if (slice >= 0)
                    #pragma unroll
                    for (int block = 0; block < TILE_N / 32; ++block)
                        store_column_block(p, WorkTile{}, rows, block, sum[j] + block * 16, held[block], KEEPS_ALL, [](EpilogueOperands&, int, int) {});
                #pragma unroll
                for (int i = 0; i < ALL_SUMS; ++i) sum[j][i] = i + ACCUMS < ALL_SUMS ? sum[j][i + ACCUMS] : 0;
            }
        };
        #pragma unroll 1
        for (int piece = from; piece < pieces; piece += pace) {
            WorkTile w{};
            w.tile_n = RESIDENT ? 0 : piece % columns;
            const int patch = RESIDENT ? piece : piece / columns * IN_STAGE + consumer * PATCHES;
            if constexpr (!CLEAR_BY_SCALE_D) clear();
            int previous = -1;
            [[maybe_unused]] int previous_filter = -1;
            Ahead ahead;
            [[maybe_unused]] RowCoords first[MMA_TILES_M];
            if constexpr (STAGE_K > 1)
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) first[j] = rows_of_patch(p, patch, j);
            PatchBlock from;
            int block = 0;
            #pragma unroll 1
            do {
                const int stage = ring + pipe.stage;
                const bool is_end = is_last(p, from);
                mbarrier_wait_parity(full + 8 * stage, pipe.phase);
                const smem_desc_t a = pixels_at(patches + (RESIDENT ? stage : stage * IN_STAGE + consumer * PATCHES) * PATCH_BYTES);
                if constexpr (RESIDENT) {
                    const int in_filter = STAGE_K == 1 ? block : from.channels;
                    const smem_desc_t b = filters_at(filters + in_filter * (TAPS * STAGE_K * B_BYTES));
                    #pragma unroll
                    for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(sum[j]);
                    wgmma_fence();
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s)
                            multiply_tap(
                                sum, a, b + (r * TAPS_W + s) * (STAGE_K * B_BYTES >> 4), r * STEP_H * PITCH + s * STEP_W, is_end,
                                CLEAR_BY_SCALE_D && r == 0 && s == 0 ? block : 1
                            );
                    wgmma_commit();
                    if constexpr (STAGE_K > 1) {
                        wgmma_wait<0>();
                        if (is_first) mbarrier_arrive(empty + 8 * stage);
                        if (is_end) leave_slice(first, from.slice - (STAGE_K - 1));
                    } else {
                        wgmma_wait<1>();
                        if (previous >= 0 && is_first) mbarrier_arrive(empty + 8 * previous);
                    }
                } else {
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s) {
                            mbarrier_wait_parity(full_filter + 8 * next.stage, next.phase);
                            const smem_desc_t b = filters_at(filters + next.stage * B_BYTES);
                            #pragma unroll
                            for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(sum[j]);
                            wgmma_fence();
                            const int shift = r * STEP_H * PITCH + s * STEP_W;
                            if constexpr (LATE)
                                if (r == TAPS_H - 1 && s == TAPS_W - 1) multiply_half<0>(sum, a, b, shift, is_end);
                                else multiply_tap(sum, a, b, shift, is_end, 1);
                            else multiply_tap(sum, a, b, shift, is_end, 1);
                            wgmma_commit();
                            if (RESIDUAL_BYTES > 0 && r == 0 && s == 0 && block == blocks / 2) {
                                wgmma_wait<0>();
                                ahead.template read<true>(memory + (residual - patches), barriers, consumer, phase);
                            } else {
                                wgmma_wait<1>();
                            }
                            // What the products before these have read may be filled again.
                            if (previous_filter >= 0 && is_first) mbarrier_arrive(empty_filter + 8 * previous_filter);
                            if (r == 0 && s == 0 && previous >= 0 && is_first) mbarrier_arrive(empty + 8 * previous);
                            previous_filter = next.stage;
                            next.advance();
                        }
                    if constexpr (LATE) {
                        wgmma_fence();
                        const smem_desc_t b = filters_at(filters + previous_filter * B_BYTES);
                        multiply_half<1>(sum, a, b, (TAPS_H - 1) * STEP_H * PITCH + (TAPS_W - 1) * STEP_W, is_end);
                        wgmma_commit();
                    }
                }
                previous = stage;
                pipe.advance();
                from.advance(p);
            } while (++block < blocks);
            if constexpr (STAGE_K > 1) {
                if (piece + pace >= pieces) pdl_trigger();
                continue;
            }
            ahead.template read<false>(memory + (residual - patches), barriers, consumer, phase);
            RowCoords rows[MMA_TILES_M];
            if constexpr (KEEPS_ALL && !RESIDENT)  // while the last products run
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) rows[j] = rows_of_patch(p, patch + j / OF_PATCH, j % OF_PATCH);
            const auto end_products = [&] {
                wgmma_wait<0>();
                if (piece + pace >= pieces) pdl_trigger();
                #pragma unroll
                for (int j = LATE; j < MMA_TILES_M; ++j) fence_accumulators(sum[j]);
                if (is_first) {
                    mbarrier_arrive(empty + 8 * previous);
                    if constexpr (!RESIDENT) mbarrier_arrive(empty_filter + 8 * previous_filter);
                }
            };
            if constexpr (LATE) {
                wgmma_wait<1>();
                fence_accumulators(sum[0]);
            } else {
                end_products();
            }
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j) {
                if (LATE && j == 1) end_products();
                if constexpr (!KEEPS_ALL || RESIDENT) rows[j] = rows_of_patch(p, patch + j / OF_PATCH, j % OF_PATCH);
                #pragma unroll
                for (int block = 0; block < TILE_N / 32; ++block)
                    store_column_block(
                        p, w, rows[j], block, sum[j] + block * 16, held[block], KEEPS_ALL,
                        [&](EpilogueOperands& held, int block, int h) { ahead.bring(held, j, block, h); }
                    );
            }
        }
    }
}
