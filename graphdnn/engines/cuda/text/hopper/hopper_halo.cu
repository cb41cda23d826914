// Convolutions of unit stride on the tensor cores of compute capability 9.0, each piece of the image copied once for all taps.
//
// A consumer has a patch of TALL x WIDE pixels of the result. The pixels that its taps reach lie in shared memory as rows
// of 128 bytes of channels, PITCH pixels from one line of the image to the next, zeros around the image; a tap reads them
// `shift` pixels further on, for swizzled rows are found by their address alone. 64 rows of a product are
//   8 x 8 pixels: eights of neighbours, PITCH apart                      (LINEAR false)
//   64 pixels that follow each other, those between two lines for nobody (LINEAR true)
// RESIDENT: filters stay in shared memory, and consumers go their own ways, each with a ring of patches. Otherwise filters
// come tap by tap through a ring of FILTERS stages, and a stage of the other ring holds PATCHES for each consumer.

constexpr int THREADS = 128 * (CONSUMERS + 1), TAPS = TAPS_H * TAPS_W;
constexpr int PITCH = WIDE + (TAPS_W - 1) * STEP_W, LINES = TALL + (TAPS_H - 1) * STEP_H;
constexpr int LANDING = LINES * PITCH * ROW;  // bytes of a patch; the stage that holds it is as long or longer
// Filters across k come in whole panels, whose last columns may be the next tile's.
constexpr int PANELS = (BN + PANEL - 1) / PANEL, B_BYTES = ACROSS_FILTER ? PANELS * PANEL_BYTES : BN * ROW;
constexpr int IN_STAGE = RESIDENT ? 1 : CONSUMERS * PATCHES, LEAVING = RESIDENT ? 1 : CONSUMERS;  // patches, arrivals
constexpr int OF_PATCH = MI / PATCHES;  // 64s of rows
constexpr int RINGS = RESIDENT ? CONSUMERS : 1;
// Where registers suffice, a patch's first products begin its sums, which nobody clears (as in hopper_gemm.cu).
constexpr bool BEGUN_BY_PRODUCTS = RESIDENT && SPARES_REGISTERS;
static_assert(LINEAR || (TALL % 8 == 0 && WIDE % 8 == 0 && TALL * WIDE == 64 * OF_PATCH), "whole blocks of 8 x 8");
static_assert(!LINEAR || (TALL - 1) * PITCH + WIDE <= 64 * OF_PATCH, "all lines within the rows");
static_assert(MI % PATCHES == 0 && (PATCHES == 1 || !RESIDENT), "a consumer's patches");
static_assert(PATCH_BYTES >= LANDING && PATCH_BYTES % 1024 == 0 && BN % 32 == 0, "whole swizzles and blocks of columns");

// Pixels from a patch's first to the first of 64 rows, and the same from a consumer's first patch.
constexpr int first_in_patch(int j) { return LINEAR ? 64 * j : 8 * (j / (WIDE / 8)) * PITCH + j % (WIDE / 8) * 8; }
constexpr int first_of(int j) { return j / OF_PATCH * (PATCH_BYTES / ROW) + first_in_patch(j % OF_PATCH); }

__device__ __forceinline__ matrix_t pixels_at(shared_t address) {
    const matrix_t between_eights = ((LINEAR ? 8 : PITCH) * ROW) >> 4, unused = 1, swizzled = 1;
    return (matrix_t)((address & 0x3FFFF) >> 4) | unused << 16 | between_eights << 32 | swizzled << 62;
}

struct Corner { int h, w, n; };  // of a patch, in the result

__device__ __forceinline__ Corner corner_of(const Params& p, int patch) {
    Corner found;
    found.w = take(patch, (int)p.patches_across) * WIDE;
    found.h = take(patch, (int)p.patches_down) * TALL;
    found.n = patch;
    return found;
}

// What the epilogue is going to read of a patch from operands as large as the result, asked for line by line, by two warps.
__device__ __forceinline__ void fetch_patch(const Params& p, int patch, int first) {
    const Corner corner = corner_of(p, patch);
    #pragma unroll 1
    for (int i = (int)threadIdx.x % 64; i < TALL * WIDE; i += 64) {
        const int h = corner.h + i / WIDE, w = corner.w + i % WIDE;
        if (patch >= (int)p.patches || h >= (int)p.pixels[1] || w >= (int)p.pixels[2]) continue;
        int at[6] = {corner.n, 0, 0, 0, h, w};
        #pragma unroll 1
        for (at[2] = first; at[2] < first + BN && at[2] < (int)p.columns; at[2] += FETCHED) fetch(p, at);
    }
}

__device__ __forceinline__ Rows rows_of_patch(const Params& p, int patch, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
    const bool is_patch = patch < (int)p.patches;
    const Corner corner = corner_of(p, is_patch ? patch : 0);
    Rows found;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = warp * 16 + lane / 4 + 8 * i;
        int h, w;
        if constexpr (LINEAR) {
            h = (64 * j + row) / PITCH;
            w = 64 * j + row - h * PITCH;
        } else {
            h = 8 * (j / (WIDE / 8)) + warp * 2 + i;
            w = 8 * (j % (WIDE / 8)) + lane / 4;
        }
        bool is_inside = is_patch && corner.h + h < (int)p.pixels[1] && corner.w + w < (int)p.pixels[2];
        if constexpr (LINEAR) is_inside = is_inside && h < TALL && w < WIDE;
        found.is_inside[i] = is_inside;
        found.at[i][0] = is_inside ? corner.n : 0;
        found.at[i][1] = found.at[i][2] = found.at[i][3] = 0;
        found.at[i][4] = is_inside ? corner.h + h : 0;
        found.at[i][5] = is_inside ? corner.w + w : 0;
    }
    return found;
}

__device__ __forceinline__ void copy_patch(const Params& p, shared_t to, shared_t barrier, int block, int patch) {
    const Corner corner = corner_of(p, patch);
    copy_box(to, p.gathered[0], barrier, block * BK, corner.w + (int)p.lowest[2], corner.h + (int)p.lowest[1], corner.n);
}

// BN columns of one tap, 128 bytes of channels deep.
__device__ __forceinline__ void copy_filter(const Params& p, shared_t to, shared_t barrier, int block, int tap, int column) {
    const int r = tap / TAPS_W, s = tap - r * TAPS_W;
    const int in_filter = (int)p.tap_first + r * (int)p.tap_pace[0] + s * (int)p.tap_pace[1];
    if constexpr (ACROSS_FILTER) {
        #pragma unroll
        for (int j = 0; j < PANELS; ++j)
            copy_box(to + j * PANEL_BYTES, p.plain[0], barrier, column + j * PANEL, in_filter, block * BK);
    } else if constexpr (PERMUTED) {
        copy_box(to, p.plain[0], barrier, in_filter * (int)p.tap_pitch + block * BK, 0, 0, 0, column / (4 * NEIGHBOURS));
    } else {
        copy_box(to, p.plain[0], barrier, block * BK, in_filter, column);
    }
}

// The last 128 bytes of channels may be filled in part only; what lies beyond is zeros in the image.
template <int SLICES, int COUNT>
__device__ __forceinline__ void multiply_slices(Accumulator (&sum)[COUNT][SUMS], matrix_t a, matrix_t b, int shift, int add) {
    #pragma unroll
    for (int k = 0; k < SLICES; ++k)
        #pragma unroll
        for (int j = 0; j < COUNT; ++j)
            multiply(sum[j], a + (first_of(j) + shift) * (ROW >> 4) + k * NEXT_K<false>, b + k * NEXT_K<ACROSS_FILTER>, k == 0 ? add : 1);
}

template <int COUNT>
__device__ __forceinline__ void multiply_tap(Accumulator (&sum)[COUNT][SUMS], matrix_t a, matrix_t b, int shift, bool is_last, int add) {
    if (LAST_SLICES == 4 || !is_last) multiply_slices<4>(sum, a, b, shift, add);
    else multiply_slices<LAST_SLICES>(sum, a, b, shift, add);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int blocks = (int)p.channel_blocks;
    const shared_t patches = shared_address(memory), filters = patches + CONSUMERS * PATCHES * STAGES * PATCH_BYTES;
    const shared_t full = filters + (RESIDENT ? TAPS * blocks : FILTERS) * B_BYTES, empty = full + 8 * RINGS * STAGES;
    const shared_t full_filter = empty + 8 * RINGS * STAGES, empty_filter = full_filter + 8 * FILTERS;
    if (threadIdx.x == 0) {
        begin_ring<RINGS * STAGES>(full, empty, LEAVING);
        begin_ring<FILTERS>(full_filter, empty_filter, CONSUMERS);  // one where filters are resident: only `full` is used
        publish_barriers();
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
                if (warp == 0) {
                    announce(full_filter, TAPS * blocks * B_BYTES);
                    #pragma unroll 1
                    for (int i = 0; i < TAPS * blocks; ++i)
                        copy_filter(p, filters + i * B_BYTES, full_filter, i / TAPS, i % TAPS, 0);
                }
                #pragma unroll 1
                for (int patch = blockIdx.x + gridDim.x * warp; patch < count; patch += gridDim.x * CONSUMERS)
                    for (int block = 0; block < blocks; ++block) {
                        const int stage = warp * STAGES + turn.stage;
                        await_phase(empty + 8 * stage, turn.parity ^ 1);
                        announce(full + 8 * stage, LANDING);
                        copy_patch(p, patches + stage * PATCH_BYTES, full + 8 * stage, block, patch);
                        turn.advance();
                    }
            }
        } else {
            if (warp == 0 && is_elected()) {
                #pragma unroll 1
                for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x)
                    for (int block = 0; block < blocks; ++block)
                        #pragma unroll 1
                        for (int tap = 0; tap < TAPS; ++tap) {
                            await_phase(empty_filter + 8 * next.stage, next.parity ^ 1);
                            announce(full_filter + 8 * next.stage, B_BYTES);
                            copy_filter(
                                p, filters + next.stage * B_BYTES, full_filter + 8 * next.stage, block, tap, piece % columns * BN
                            );
                            next.advance();
                        }
            }
            const auto copy_patches = [&](int piece) {
                for (int block = 0; block < blocks; ++block) {
                    await_phase(empty + 8 * turn.stage, turn.parity ^ 1);
                    announce(full + 8 * turn.stage, IN_STAGE * LANDING);
                    #pragma unroll
                    for (int i = 0; i < IN_STAGE; ++i)  // beyond the last image: zeros
                        copy_patch(
                            p, patches + (turn.stage * IN_STAGE + i) * PATCH_BYTES, full + 8 * turn.stage, block,
                            piece / columns * IN_STAGE + i
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
        Accumulator sum[MI][SUMS];
        const auto clear = [&] {
            #pragma unroll
            for (int j = 0; j < MI; ++j)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) sum[j][i] = 0;
        };
        clear();
        #pragma unroll 1
        for (int piece = from; piece < pieces; piece += pace) {
            Work w{};
            w.tile_n = RESIDENT ? 0 : piece % columns;
            const int patch = RESIDENT ? piece : piece / columns * IN_STAGE + consumer * PATCHES;
            if constexpr (!BEGUN_BY_PRODUCTS) clear();
            int previous = -1;
            [[maybe_unused]] int previous_filter = -1;
            #pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                const int stage = ring + turn.stage;
                await_phase(full + 8 * stage, turn.parity);
                const matrix_t a = pixels_at(patches + (RESIDENT ? stage : stage * IN_STAGE + consumer * PATCHES) * PATCH_BYTES);
                if constexpr (RESIDENT) {
                    const matrix_t b = matrix_at<ACROSS_FILTER>(filters + block * TAPS * B_BYTES);
                    #pragma unroll
                    for (int j = 0; j < MI; ++j) pin(sum[j]);
                    products_begin();
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s)
                            multiply_tap(
                                sum, a, b + (r * TAPS_W + s) * (B_BYTES >> 4), r * STEP_H * PITCH + s * STEP_W, block + 1 == blocks,
                                BEGUN_BY_PRODUCTS && r == 0 && s == 0 ? block : 1
                            );
                    products_end();
                    await_products<1>();
                    if (previous >= 0 && is_first) arrive(empty + 8 * previous);
                } else {
                    #pragma unroll
                    for (int r = 0; r < TAPS_H; ++r)
                        #pragma unroll
                        for (int s = 0; s < TAPS_W; ++s) {
                            await_phase(full_filter + 8 * next.stage, next.parity);
                            const matrix_t b = matrix_at<ACROSS_FILTER>(filters + next.stage * B_BYTES);
                            #pragma unroll
                            for (int j = 0; j < MI; ++j) pin(sum[j]);
                            products_begin();
                            multiply_tap(sum, a, b, r * STEP_H * PITCH + s * STEP_W, block + 1 == blocks, 1);
                            products_end();
                            await_products<1>();
                            // What the products before these have read may be filled again.
                            if (previous_filter >= 0 && is_first) arrive(empty_filter + 8 * previous_filter);
                            if (r == 0 && s == 0 && previous >= 0 && is_first) arrive(empty + 8 * previous);
                            previous_filter = next.stage;
                            next.advance();
                        }
                }
                previous = stage;
                turn.advance();
            }
            await_products<0>();
            if (piece + pace >= pieces) let_next_start();
            #pragma unroll
            for (int j = 0; j < MI; ++j) pin(sum[j]);
            if (is_first) {
                arrive(empty + 8 * previous);
                if constexpr (!RESIDENT) arrive(empty_filter + 8 * previous_filter);
            }
            #pragma unroll
            for (int j = 0; j < MI; ++j) leave_all<BN / 32>(p, w, rows_of_patch(p, patch + j / OF_PATCH, j % OF_PATCH), 0, sum[j]);
        }
    }
}
