// Convolutions on the tensor cores of compute capability 9.0 whose filters stay in shared memory.
//
// A block has BN columns for as long as it runs: all taps and channels of them are copied once, a step of k at a time.
// Each of its CONSUMERS has 64 pixels of the result and a ring of STAGES of its own, filled by a warp of its own: the copy
// unit walks through the image tap by tap, at any stride. Consumers do not wait for each other, so one's results leave
// while the others multiply. What the epilogue reads for a lane's columns stays in registers where they suffice.

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int A_BYTES = PANEL_BYTES, B_BYTES = BN * ROW;
constexpr bool BEGUN_BY_PRODUCTS = SPARES_REGISTERS;
constexpr bool KEEPS_ALL = SPARES_REGISTERS && SUMS + BN / 32 * (int)sizeof(Held) / 4 + 40 <= MULTIPLYING_REGISTERS;
static_assert(CONSUMERS <= 3 && BN % 32 == 0, "a warp for each consumer and one for filters, whole blocks of columns");
static_assert(!ACROSS_FILTER, "filters lie along k");

template <int SLICES> __device__ __forceinline__ void multiply_step(Accumulator (&sum)[SUMS], matrix_t a, matrix_t b, int add) {
    #pragma unroll
    for (int k = 0; k < SLICES; ++k) multiply(sum, a + k * NEXT_K<false>, b + k * NEXT_K<false>, k == 0 ? add : 1);
}

// A tap and a block of channels, in the order in which steps of k follow each other.
struct Step { Tap tap; int block; };

__device__ __forceinline__ void next_step(const Params& p, Step& step) {
    if (++step.block == (int)p.channel_blocks) step.block = 0, next_tap(p, 0, step.tap);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_weight_stationary(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int depth = (int)p.depth[0], tiles = (int)p.tiles_m[0], across = (int)p.tiles_n;
    const shared_t filters = shared_address(memory), rings = filters + depth * B_BYTES;
    const shared_t full = rings + CONSUMERS * STAGES * A_BYTES, empty = full + 8 * CONSUMERS * STAGES;
    const shared_t landed = empty + 8 * CONSUMERS * STAGES;
    if (threadIdx.x == 0) {
        begin_ring<CONSUMERS * STAGES>(full, empty, 1);
        for (int i = 0; i < depth; ++i) init_barrier(landed + 8 * i, 1);
        publish_barriers();
        fetch_map(p.gathered[0]);
        fetch_map(p.plain[0]);
    }
    __syncthreads();
    if (p.leaves_room) let_next_start();  // on multiprocessors without a block
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tile_n = (int)blockIdx.x % across, first = (int)blockIdx.x / across, pace = (int)gridDim.x / across;
    Turn<STAGES> turn;
    if (warpgroup == 0) {
        give_registers<COPYING_REGISTERS>();
        if (warp > CONSUMERS || !is_elected()) return;
        Step step{};
        if (warp == CONSUMERS) {
            wait_for_launch_before();
            #pragma unroll 1
            for (int i = 0; i < depth; ++i, next_step(p, step)) {
                int in_filter = (int)p.filter_start[0];
                #pragma unroll
                for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += step.tap.at[d] * (int)p.filter_step[d];
                const shared_t to = filters + i * B_BYTES, barrier = landed + 8 * i;
                announce(barrier, B_BYTES);
                if constexpr (PERMUTED)
                    copy_box(
                        to, p.plain[0], barrier, in_filter * (int)p.tap_pitch + step.block * BK, 0, 0, 0,
                        tile_n * BN / (4 * NEIGHBOURS)
                    );
                else copy_box(to, p.plain[0], barrier, step.block * BK, in_filter, tile_n * BN);
            }
            return;
        }
        const shared_t ring = rings + warp * STAGES * A_BYTES, barriers = 8 * warp * STAGES;
        bool is_first = true;
        #pragma unroll 1
        for (int tile = first + pace * warp; tile < tiles; tile += pace * CONSUMERS) {
            int start[3], offset[3];
            const Pixel pixel = pixel_of(p, 0, tile * PANEL);
            gathered_start(p, 0, pixel, start);
            step = Step{};
            #pragma unroll 1
            for (int i = 0; i < depth; ++i, next_step(p, step)) {
                offset_of(p, 0, step.tap, offset);
                if (is_first) wait_for_launch_before();
                is_first = false;
                await_phase(empty + barriers + 8 * turn.stage, turn.parity ^ 1);
                announce(full + barriers + 8 * turn.stage, A_BYTES);
                copy_pixels<SPATIAL>(
                    ring + turn.stage * A_BYTES, p.gathered[0], full + barriers + 8 * turn.stage, step.block * BK, pixel.n, start,
                    offset
                );
                turn.advance();
            }
        }
        return;
    }
    take_registers<MULTIPLYING_REGISTERS>();
    wait_for_launch_before();
    const int consumer = warpgroup - 1, stages = consumer * STAGES;
    const bool speaks = threadIdx.x % 128 == 0;
    Accumulator sum[SUMS];
    const auto clear = [&] {
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) sum[i] = 0;
    };
    clear();
    Work w{};
    w.tile_n = tile_n;
    // What the epilogue reads for a lane's columns stays as well.
    Held held[BN / 32];
    if constexpr (KEEPS_ALL) {
        const Rows any = rows_from(p, w, 0);
        #pragma unroll
        for (int block = 0; block < BN / 32; ++block) keep_piece(p, piece_of(p, w, any, block, 0), held[block]);
    }
    #pragma unroll 1
    for (int tile = first + pace * consumer; tile < tiles; tile += pace * CONSUMERS) {
        if constexpr (!BEGUN_BY_PRODUCTS) clear();
        int previous = -1, block = 0;
        #pragma unroll 1
        for (int i = 0; i < depth; ++i) {
            await_phase(landed + 8 * i, 0);
            await_phase(full + 8 * (stages + turn.stage), turn.parity);
            const matrix_t a = matrix_at<false>(rings + (stages + turn.stage) * A_BYTES);
            const matrix_t b = matrix_at<false>(filters + i * B_BYTES);
            const int add = BEGUN_BY_PRODUCTS ? i : 1;
            pin(sum);
            products_begin();
            // The last 128 bytes of channels may be filled in part only; what lies beyond is zeros in the image.
            if (LAST_SLICES == 4 || ++block < (int)p.channel_blocks) {
                multiply_step<4>(sum, a, b, add);
            } else {
                multiply_step<LAST_SLICES>(sum, a, b, add);
                block = 0;
            }
            products_end();
            await_products<1>();
            if (previous >= 0 && speaks) arrive(empty + 8 * (stages + previous));
            previous = turn.stage;
            turn.advance();
        }
        const Rows rows = rows_from(p, w, tile * 64 + warp * 16 + (int)threadIdx.x % 32 / 4);
        await_products<0>();
        if (tile + pace * CONSUMERS >= tiles) let_next_start();
        pin(sum);
        if (speaks) arrive(empty + 8 * (stages + previous));
        #pragma unroll
        for (int block = 0; block < BN / 32; ++block)
            leave_block(p, w, rows, block, sum + block * 16, held[block], KEEPS_ALL, BringsNothing());
    }
}
