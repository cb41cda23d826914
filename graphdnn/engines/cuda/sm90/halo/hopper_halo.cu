// Convolutions of unit stride on the tensor cores of compute capability 9.0, each piece of the image copied once for all taps.
//
// A consumer has a patch of TALL x WIDE pixels of the result. The pixels that its taps reach lie in shared memory as rows
// of PATCH_ROW bytes of channels, PITCH pixels from one line of the image to the next, zeros around the image; a tap reads them
// `shift` pixels further on, for swizzled rows are found by their address alone. 64 rows of a product are
//   8 x 8 pixels: eights of neighbours, PITCH apart                      (LINEAR false)
//   64 pixels that follow each other, those between two lines for nobody (LINEAR true)
// Of three axes, slices of the image are read one after the other. DEEP: each is multiplied once for all slices of the result
// that it meets, whose sums lie side by side: a patch has a run of slices of the result then, and reads DEEP - 1 more.
//
// RESIDENT: filters stay in shared memory, and consumers go their own ways, each with a ring of patches. Otherwise filters
// come tap by tap through a ring of FILTERS stages, and a stage of the other ring holds PATCHES for each consumer. A residual
// may come beside them (hopper_halo_residual.cuh).

// The last 128 bytes of channels may be filled in part only; what lies beyond is zeros in the image.
template <int SLICES, int COUNT>
__device__ __forceinline__ void multiply_slices(Accumulator (&sum)[COUNT][ALL_SUMS], matrix_t a, matrix_t b, int shift, int add) {
    #pragma unroll
    for (int k = 0; k < SLICES; ++k)
        #pragma unroll
        for (int j = 0; j < COUNT; ++j)
            multiply(sum[j], a + (first_of(j) + shift) * (PATCH_ROW >> 4) + k * NEXT_K<false>, b + k * NEXT_B, k == 0 ? add : 1);
}

template <int COUNT>
__device__ __forceinline__ void multiply_tap(Accumulator (&sum)[COUNT][ALL_SUMS], matrix_t a, matrix_t b, int shift, bool is_last, int add) {
    if (LAST_SLICES == 4 || !is_last) multiply_slices<4>(sum, a, b, shift, add);
    else multiply_slices<LAST_SLICES>(sum, a, b, shift, add);
}

// LATE: the last tap of a block of channels is multiplied for a consumer's first 64 pixels, then for the others, so that the first
// results leave while those of the others become complete.
static_assert(!LATE || (!RESIDENT && MI == 2 && RESIDUAL_BYTES == 0), "halves of a ring");

template <int J, int COUNT>
__device__ __forceinline__ void multiply_half(Accumulator (&sum)[COUNT][ALL_SUMS], matrix_t a, matrix_t b, int shift, bool is_last) {
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        if (k < LAST_SLICES || !is_last)
            multiply(sum[J], a + (first_of(J) + shift) * (PATCH_ROW >> 4) + k * NEXT_K<false>, b + k * NEXT_B, 1);
}

// What the epilogue reads for a lane's columns stays in registers where these are a block's only ones, and suffice.
constexpr int KEPT = BN / 32 * (int)sizeof(Held) / 4;
constexpr bool KEEPS_ALL = STAYS && RESIDUAL_BYTES == 0 && SPARES_REGISTERS && MI * SUMS + KEPT + 40 <= MULTIPLYING_REGISTERS;

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int blocks = blocks_of(p);
    const shared_t patches = shared_address(memory), filters = patches + CONSUMERS * PATCHES * STAGES * PATCH_BYTES;
    const shared_t residual = filters + (RESIDENT ? TAPS * filter_blocks_of(p) : FILTERS) * B_BYTES, full = residual + RESIDUAL_BYTES;
    const shared_t empty = full + 8 * RINGS * STAGES, full_filter = empty + 8 * RINGS * STAGES;
    const shared_t empty_filter = full_filter + 8 * FILTERS, barriers = empty_filter + 8 * FILTERS;
    if (threadIdx.x == 0) {
        begin_ring<RINGS * STAGES>(full, empty, LEAVING);
        begin_ring<FILTERS>(full_filter, empty_filter, CONSUMERS);  // one where filters are resident: only `full` is used
        begin_residual(barriers);
        publish_barriers();
        fetch_map(p.gathered[0]);
        fetch_map(p.plain[0]);
    }
    __syncthreads();
    wait_for_launch_before();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int columns = (int)p.tiles_n, count = (int)p.patches;
    const int pieces = RESIDENT ? count : (count + IN_STAGE - 1) / IN_STAGE * columns;
    Turn<STAGES> turn;
    [[maybe_unused]] Turn<FILTERS> next;
    if (warpgroup == 0) {
        give_registers<COPYING_REGISTERS>();
        if constexpr (RESIDENT) {
            if (warp < CONSUMERS && is_elected()) {  // a warp for each consumer
                if (warp == 0) copy_filters(p, filters, full_filter);
                #pragma unroll 1
                for (int patch = blockIdx.x + gridDim.x * warp; patch < count; patch += gridDim.x * CONSUMERS) {
                    const Corner corner = corner_of(p, patch);
                    PatchBlock from;
                    for (int block = 0; block < blocks; ++block, from.advance(p)) {
                        const int stage = warp * STAGES + turn.stage;
                        await_phase(empty + 8 * stage, turn.parity ^ 1);
                        announce(full + 8 * stage, LANDING);
                        copy_patch(p, patches + stage * PATCH_BYTES, full + 8 * stage, from, corner);
                        turn.advance();
                    }
                }
            }
        } else {
            if (warp == 0 && is_elected()) {
                ResidualCopies copies(residual, barriers);
                #pragma unroll 1
                for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
                    copies.begin(piece / columns * IN_STAGE, piece % columns * BN);
                    PatchBlock from;
                    for (int block = 0; block < blocks; ++block, from.advance(p))
                        #pragma unroll 1
                        for (int tap = 0; tap < TAPS; ++tap) {
                            await_phase(empty_filter + 8 * next.stage, next.parity ^ 1);
                            announce(full_filter + 8 * next.stage, B_BYTES);
                            copy_filter(
                                p, filters + next.stage * B_BYTES, full_filter + 8 * next.stage, from, tap, piece % columns * BN
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
                    await_phase(empty + 8 * turn.stage, turn.parity ^ 1);
                    announce(full + 8 * turn.stage, IN_STAGE * LANDING);
                    #pragma unroll
                    for (int i = 0; i < IN_STAGE; ++i)  // beyond the last image: zeros
                        copy_patch(
                            p, patches + (turn.stage * IN_STAGE + i) * PATCH_BYTES, full + 8 * turn.stage, from,
                            corner_of(p, piece / columns * IN_STAGE + i)
                        );
                    turn.advance();
                }
            };
            if constexpr (FETCHED == 0) {
                if (warp == 1 && is_elected()) {
                    #pragma unroll 1
                    for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) copy_patches(piece);
                }
            } else if (warp >= 1) {
                #pragma unroll 1
                for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
                    meet<96>();  // a patch is not fetched before its copies are due
                    if (warp == 1) {
                        if (is_elected()) copy_patches(piece);
                        __syncwarp();
                    } else {
                        #pragma unroll 1
                        for (int i = 0; i < IN_STAGE; ++i)
                            fetch_patch(p, piece / columns * IN_STAGE + i, piece % columns * BN);
                    }
                }
            }
        }
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        const int consumer = warpgroup - 1;
        const bool is_first = threadIdx.x % 128 == 0;
        const int from = RESIDENT ? (int)(blockIdx.x + gridDim.x * consumer) : (int)blockIdx.x;
        const int pace = RESIDENT ? (int)gridDim.x * CONSUMERS : (int)gridDim.x;
        const int ring = RESIDENT ? consumer * STAGES : 0;
        if (RESIDENT) await_phase(full_filter, 0);
        Accumulator sum[MI][ALL_SUMS];
        const auto clear = [&] {
            #pragma unroll
            for (int j = 0; j < MI; ++j)
                #pragma unroll
                for (int i = 0; i < ALL_SUMS; ++i) sum[j][i] = 0;
        };
        clear();
        [[maybe_unused]] int parity = 0;  // of the residual
        Held held[BN / 32];
        if constexpr (KEEPS_ALL) {
            wait_for_launch_before();
            Work w{};
            w.tile_n = RESIDENT ? 0 : from % columns;
            const Rows any = rows_of_patch(p, 0, 0);
            #pragma unroll
            for (int block = 0; block < BN / 32; ++block) keep_piece(p, piece_of(p, w, any, block, 0), held[block]);
        }
        // The first of the slices side by side has met all that it is a sum of; the others move on, and another one begins.
        [[maybe_unused]] const auto leave_slice = [&](const Rows (&first)[MI], int slice) {
            #pragma unroll
            for (int j = 0; j < MI; ++j) {
                pin(sum[j]);
                const Rows rows = rows_of_slice(p, first[j], slice);
                if (slice >= 0)
                    #pragma unroll
                    for (int block = 0; block < BN / 32; ++block)
                        leave_block(p, Work{}, rows, block, sum[j] + block * 16, held[block], KEEPS_ALL, [](Held&, int, int) {});
                #pragma unroll
                for (int i = 0; i < ALL_SUMS; ++i) sum[j][i] = i + SUMS < ALL_SUMS ? sum[j][i + SUMS] : 0;
            }
        };
        #pragma unroll 1
        for (int piece = from; piece < pieces; piece += pace) {
            Work w{};
            w.tile_n = RESIDENT ? 0 : piece % columns;
            const int patch = RESIDENT ? piece : piece / columns * IN_STAGE + consumer * PATCHES;
            if constexpr (!BEGUN_BY_PRODUCTS) clear();
            int previous = -1;
            [[maybe_unused]] int previous_filter = -1;
            Ahead ahead;
            [[maybe_unused]] Rows first[MI];
            if constexpr (DEEP > 1)
                #pragma unroll
                for (int j = 0; j < MI; ++j) first[j] = rows_of_patch(p, patch, j);
            PatchBlock from;
            int block = 0;
            #pragma unroll 1
            do {
                const int stage = ring + turn.stage;
                const bool is_end = is_last(p, from);
                await_phase(full + 8 * stage, turn.parity);
                const matrix_t a = pixels_at(patches + (RESIDENT ? stage : stage * IN_STAGE + consumer * PATCHES) * PATCH_BYTES);
                if constexpr (RESIDENT) {
                    const int in_filter = DEEP == 1 ? block : from.channels;
                    const matrix_t b = filters_at(filters + in_filter * (TAPS * DEEP * B_BYTES));
                    #pragma unroll
                    for (int j = 0; j < MI; ++j) pin(sum[j]);
                    products_begin();
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s)
                            multiply_tap(
                                sum, a, b + (r * TAPS_W + s) * (DEEP * B_BYTES >> 4), r * STEP_H * PITCH + s * STEP_W, is_end,
                                BEGUN_BY_PRODUCTS && r == 0 && s == 0 ? block : 1
                            );
                    products_end();
                    if constexpr (DEEP > 1) {
                        await_products<0>();
                        if (is_first) arrive(empty + 8 * stage);
                        if (is_end) leave_slice(first, from.slice - (DEEP - 1));
                    } else {
                        await_products<1>();
                        if (previous >= 0 && is_first) arrive(empty + 8 * previous);
                    }
                } else {
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s) {
                            await_phase(full_filter + 8 * next.stage, next.parity);
                            const matrix_t b = filters_at(filters + next.stage * B_BYTES);
                            #pragma unroll
                            for (int j = 0; j < MI; ++j) pin(sum[j]);
                            products_begin();
                            const int shift = r * STEP_H * PITCH + s * STEP_W;
                            if constexpr (LATE)
                                if (r == TAPS_H - 1 && s == TAPS_W - 1) multiply_half<0>(sum, a, b, shift, is_end);
                                else multiply_tap(sum, a, b, shift, is_end, 1);
                            else multiply_tap(sum, a, b, shift, is_end, 1);
                            products_end();
                            if (RESIDUAL_BYTES > 0 && r == 0 && s == 0 && block == blocks / 2) {
                                await_products<0>();
                                ahead.template read<true>(memory + (residual - patches), barriers, consumer, parity);
                            } else {
                                await_products<1>();
                            }
                            // What the products before these have read may be filled again.
                            if (previous_filter >= 0 && is_first) arrive(empty_filter + 8 * previous_filter);
                            if (r == 0 && s == 0 && previous >= 0 && is_first) arrive(empty + 8 * previous);
                            previous_filter = next.stage;
                            next.advance();
                        }
                    if constexpr (LATE) {
                        products_begin();
                        const matrix_t b = filters_at(filters + previous_filter * B_BYTES);
                        multiply_half<1>(sum, a, b, (TAPS_H - 1) * STEP_H * PITCH + (TAPS_W - 1) * STEP_W, is_end);
                        products_end();
                    }
                }
                previous = stage;
                turn.advance();
                from.advance(p);
            } while (++block < blocks);
            if constexpr (DEEP > 1) {
                if (piece + pace >= pieces) let_next_start();
                continue;
            }
            ahead.template read<false>(memory + (residual - patches), barriers, consumer, parity);
            Rows rows[MI];
            if constexpr (KEEPS_ALL && !RESIDENT)  // while the last products run
                #pragma unroll
                for (int j = 0; j < MI; ++j) rows[j] = rows_of_patch(p, patch + j / OF_PATCH, j % OF_PATCH);
            const auto end_products = [&] {
                await_products<0>();
                if (piece + pace >= pieces) let_next_start();
                #pragma unroll
                for (int j = LATE; j < MI; ++j) pin(sum[j]);
                if (is_first) {
                    arrive(empty + 8 * previous);
                    if constexpr (!RESIDENT) arrive(empty_filter + 8 * previous_filter);
                }
            };
            if constexpr (LATE) {
                await_products<1>();
                pin(sum[0]);
            } else {
                end_products();
            }
            #pragma unroll
            for (int j = 0; j < MI; ++j) {
                if (LATE && j == 1) end_products();
                if constexpr (!KEEPS_ALL || RESIDENT) rows[j] = rows_of_patch(p, patch + j / OF_PATCH, j % OF_PATCH);
                #pragma unroll
                for (int block = 0; block < BN / 32; ++block)
                    leave_block(
                        p, w, rows[j], block, sum[j] + block * 16, held[block], KEEPS_ALL,
                        [&](Held& held, int block, int h) { ahead.bring(held, j, block, h); }
                    );
            }
        }
    }
}
