// Strided data gradients on the tensor cores of compute capability 9.0: one copied piece of dy serves all residues of the
// positions modulo the stride.
//
//   rows: places in dy, in the order of a walk   columns: residues, BN channels of each   k: channels of dy
//
// Position h of dx is residue h % stride at place h / stride. What a place's taps read lies some lines and pixels from it,
// the same for all places, and often the same for several residues: these are neighbouring columns of one product, a
// meeting. A stage has the pixels of 64 places for each line that taps reach, and those that a line's taps reach behind
// them; a tap reads them `SHIFT` rows further on, for swizzled rows are found by their address alone. The walk goes beyond
// the end of a line, so that nothing of the next one is read there, and what such places come to is for nobody.
//
// The filters of a block's columns stay in shared memory, those of a meeting side by side.

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int LANDING = PIXELS * ROW, LINE_BYTES = (LANDING + 1023) / 1024 * 1024, STAGE_BYTES = LINES * LINE_BYTES;
// A tap's filters, 128 bytes of k or 64 steps of it deep.
constexpr int FILTER_ROW = ACROSS_FILTER ? BN * (int)sizeof(Element) : ROW, FILTER_ROWS = ACROSS_FILTER ? PANEL : BN;
constexpr int FILTER_BYTES = FILTER_ROWS * FILTER_ROW, OF_STEP = ACROSS_FILTER ? 16 * FILTER_ROW >> 4 : 32 >> 4;
static_assert(BM == 64 * CONSUMERS && !(WGRAD || TURNED || PERMUTED), "64 places of a consumer");
static_assert(FILTER_ROW == 128 || FILTER_ROW == 64, "swizzles that there are");

__device__ __forceinline__ matrix_t filters_at(shared_t address) {
    const matrix_t between_panels = ACROSS_FILTER ? FILTER_BYTES >> 4 : 1, between_eights = (8 * FILTER_ROW) >> 4;
    const matrix_t swizzled = FILTER_ROW == 128 ? 1 : 2;
    return (matrix_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}

// The place of a product's row; of what is beyond the last, the first.
struct Place { int n, h, w; bool is_there; };

__device__ __forceinline__ Place place_of(const Params& p, int number) {
    Place found;
    found.is_there = number < (int)p.places;
    if (!found.is_there) number = 0;
    found.w = take(number, (int)p.walked[1]);
    found.h = take(number, (int)p.walked[0]);
    found.n = number;
    return found;
}

__device__ __forceinline__ Rows rows_of_residue(const Params& p, const Place (&places)[2], int residue) {
    Rows found;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const Place& at = places[i];
        const bool is_inside = at.is_there && at.h < (int)p.pixels[residue * 3 + 1] && at.w < (int)p.pixels[residue * 3 + 2];
        found.is_inside[i] = is_inside;
        found.at[i][0] = at.n;
        found.at[i][1] = found.at[i][2] = found.at[i][3] = 0;
        found.at[i][4] = is_inside ? (int)p.first_pixel[residue * 3 + 1] + at.h * (int)p.pixel_pitch[1] : 0;
        found.at[i][5] = is_inside ? (int)p.first_pixel[residue * 3 + 2] + at.w * (int)p.pixel_pitch[2] : 0;
    }
    return found;
}

// All taps of a block of channels, the first of each residue with the first block begins its sums.
template <int I> __device__ __forceinline__ void multiply_taps(
    Accumulator (&sum)[RESIDUES][SUMS], shared_t pixels, shared_t filters, int block
) {
    const matrix_t a = matrix_at<false>(pixels + LINE_OF_TAP[I] * LINE_BYTES) + SHIFT_OF_TAP[I] * (ROW >> 4);
    const matrix_t b = filters_at(filters + I * FILTER_BYTES);
    #pragma unroll
    for (int k = 0; k < 4; ++k)
        multiply(sum[RESIDUE_OF_TAP[I]], a + k * NEXT_K<false>, b + k * OF_STEP, BEGINS[I] && k == 0 ? block : 1);
    if constexpr (I + 1 < FILTERS) multiply_taps<I + 1>(sum, pixels, filters, block);
}

// Rows of a in registers: those of a step are read while the step's before are multiplied.
typedef unsigned int Held64[MEETINGS][4];

__device__ __forceinline__ void pin(Held64& a) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < MEETINGS; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
#endif
}

template <int I> __device__ __forceinline__ void read_rows(Held64& a, const unsigned char* memory, int stage, int k) {
    constexpr int TAP = FIRST_TAP[I];
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 % 4 * 16 + lane % 16 + SHIFT_OF_TAP[TAP];
    load_matrices<false>(
        a[I], memory, stage * STAGE_BYTES + LINE_OF_TAP[TAP] * LINE_BYTES + row * ROW + (((2 * k + lane / 16) ^ row % 8) << 4)
    );
    if constexpr (I + 1 < MEETINGS) read_rows<I + 1>(a, memory, stage, k);
}

template <int I> __device__ __forceinline__ void multiply_rows_of_taps(
    Accumulator (&sum)[RESIDUES][SUMS], Held64& a, shared_t filters, int block, int k
) {
    const matrix_t b = filters_at(filters + I * FILTER_BYTES);
    multiply_rows(sum[RESIDUE_OF_TAP[I]], a[MEETING_OF_TAP[I]], b + k * OF_STEP, BEGINS[I] && k == 0 ? block : 1);
    if constexpr (I + 1 < FILTERS) multiply_rows_of_taps<I + 1>(sum, a, filters, block, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo_dgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int blocks = (int)p.channel_blocks, across = (int)p.tiles_n;
    const shared_t ring = shared_address(memory), filters = ring + STAGES * STAGE_BYTES;
    const shared_t full = filters + blocks * FILTERS * FILTER_BYTES, empty = full + 8 * STAGES, landed = empty + 8 * STAGES;
    if (threadIdx.x == 0) {
        begin_ring<STAGES>(full, empty, FROM_REGISTERS ? 4 : 1);
        for (int i = 0; i < blocks; ++i) init_barrier(landed + 8 * i, 1);
        publish_barriers();
        fetch_map(p.gathered[0]);
        fetch_map(p.plain[0]);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int pieces = ((int)p.places + 63) / 64, from = (int)blockIdx.x / across, pace = (int)gridDim.x / across;
    const int column = (int)blockIdx.x % across * BN;
    Turn<STAGES> turn;
    if (warpgroup == 0) {
        give_registers<COPYING_REGISTERS>();
        wait_for_launch_before();
        if (warp == 0 && is_elected()) {
            #pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                announce(landed + 8 * block, FILTERS * FILTER_BYTES);
                #pragma unroll
                for (int i = 0; i < FILTERS; ++i) {
                    const shared_t to = filters + (block * FILTERS + i) * FILTER_BYTES;
                    if constexpr (ACROSS_FILTER) copy_box(to, p.plain[0], landed + 8 * block, column, TAP_OF_FILTER[i], block * BK);
                    else copy_box(to, p.plain[0], landed + 8 * block, block * BK, TAP_OF_FILTER[i], column);
                }
            }
        }
        if (warp == 1 && is_elected()) {
            #pragma unroll 1
            for (int piece = from; piece < pieces; piece += pace) {
                const Place first = place_of(p, piece * 64);
                const int start[3] = {0, first.h + (int)p.corner[0], first.w + (int)p.corner[1]};
                #pragma unroll 1
                for (int block = 0; block < blocks; ++block) {
                    const shared_t barrier = full + 8 * turn.stage, to = ring + turn.stage * STAGE_BYTES;
                    await_phase(empty + 8 * turn.stage, turn.parity ^ 1);
                    announce(barrier, LINES * LANDING);
                    #pragma unroll
                    for (int i = 0; i < LINES; ++i) {
                        const int line[3] = {0, OFFSET_OF_LINE[i], PIXEL_OF_LINE[i]};
                        copy_pixels<2>(to + i * LINE_BYTES, p.gathered[0], barrier, block * BK, first.n, start, line);
                    }
                    turn.advance();
                }
            }
        }
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        wait_for_launch_before();
        const int consumer = warpgroup - 1, lane = (int)threadIdx.x % 32;
        const bool is_first = threadIdx.x % 128 == 0;
        Work w{};
        w.tile_n = column / BN;
        Accumulator sum[RESIDUES][SUMS];
        [[maybe_unused]] Held64 a[2];
        #pragma unroll
        for (int j = 0; j < RESIDUES; ++j)
            #pragma unroll
            for (int i = 0; i < SUMS; ++i) sum[j][i] = 0;
        for (int i = 0; i < consumer * blocks; ++i) turn.advance();
        #pragma unroll 1
        for (int piece = from + consumer * pace; piece < pieces; piece += CONSUMERS * pace) {
            [[maybe_unused]] int previous = -1;
            #pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                await_phase(landed + 8 * block, 0);
                await_phase(full + 8 * turn.stage, turn.parity);
                if constexpr (FROM_REGISTERS) {
                    #pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        await_products<1>();
                        pin(a[k % 2]);
                        read_rows<0>(a[k % 2], memory, turn.stage, k);
                        if (k == 3) {
                            __syncwarp();
                            if (lane == 0) arrive(empty + 8 * turn.stage);
                        }
                        pin(a[k % 2]);
                        #pragma unroll
                        for (int j = 0; j < RESIDUES; ++j) pin(sum[j]);
                        products_begin();
                        multiply_rows_of_taps<0>(
                            sum, a[k % 2], filters + block * FILTERS * FILTER_BYTES, block, k
                        );
                        products_end();
                    }
                } else {
                    #pragma unroll
                    for (int j = 0; j < RESIDUES; ++j) pin(sum[j]);
                    products_begin();
                    multiply_taps<0>(
                        sum, ring + turn.stage * STAGE_BYTES, filters + block * FILTERS * FILTER_BYTES, block
                    );
                    products_end();
                    await_products<1>();
                    // The block before this one is done: its stage may be filled again.
                    if (previous >= 0 && is_first) arrive(empty + 8 * previous);
                    previous = turn.stage;
                }
                turn.advance();
            }
            await_products<0>();
            if (piece + CONSUMERS * pace >= pieces) let_next_start();
            #pragma unroll
            for (int j = 0; j < RESIDUES; ++j) pin(sum[j]);
            if (!FROM_REGISTERS && is_first) arrive(empty + 8 * previous);
            for (int i = 0; i < (CONSUMERS - 1) * blocks; ++i) turn.advance();
            const int row = piece * 64 + warp * 16 + lane / 4;
            const Place places[2] = {place_of(p, row), place_of(p, row + 8)};
            #pragma unroll
            for (int j = 0; j < RESIDUES; ++j) leave_all<BN / 32>(p, w, rows_of_residue(p, places, j), 0, sum[j]);
        }
    }
}
