// Convolutions as matrix products, and matrix products, on the tensor cores of compute capability 9.0.
//
// A block has one warpgroup that copies and CONSUMERS that multiply. A thread of the first fills a ring of STAGES: BM rows of
// a and BN columns of b, 128 bytes of k deep, moved by the copy unit, which also finds the pixels of a tap and the zeros
// around the image. The others multiply from shared memory into registers, MI x 64 rows each, and pass the sums through the
// epilogue while the ring fills for the block's next tile.
//
// TEAMS of consumers have tiles of their own, in turns: the results of one leave while the other multiplies. All tiles have the same
// number of steps then, which the other team skips.
//
// Of sums that tensor cores keep with too few digits (fp8), PROMOTED steps are added by them, and what these come to is
// added in registers.
//
// Before its first tile a warpgroup rehearses the end of one, without products and stores, while the first copies are on their
// way: these are some hundred instructions, which have to come from memory once, and so does what the epilogue keeps.

constexpr int THREADS = 128 * (CONSUMERS * TEAMS + 1);
constexpr int A_BYTES = BM * ROW, B_BYTES = (WGRAD ? UNITS_TAKEN * PANEL : BN) * ROW, RING_BYTES = STAGES * (A_BYTES + B_BYTES);
// A tile of all of a product's rows has only FILLED ones copied: what lies behind them are sums that nobody stores.
constexpr int COPIED_BYTES = FILLED * ROW + B_BYTES;
// Sums that live on until the next tile's products begin them leave no register free while they leave: where there are
// too few, sums are cleared instead.
constexpr bool BEGUN_BY_PRODUCTS = SPARES_REGISTERS;
constexpr bool REHEARSES = !SPLIT;
// What the epilogue keeps is read while the last products run, where registers hold it beside the sums.
constexpr int SUMS_HELD = (PROMOTED > 0 ? 2 : 1) * MI * SUMS, KEPT_AHEAD = BLOCKS_OF_TILE * (int)sizeof(Held) / 4;
constexpr bool KEEPS_AHEAD = SPARES_REGISTERS && SUMS_HELD + KEPT_AHEAD + 40 <= MULTIPLYING_REGISTERS;
static_assert(!WGRAD || !(TURNED || ACROSS_FILTER || PERMUTED), "a filter gradient reads no filter");
static_assert(BM % (64 * CONSUMERS) == 0, "whole panels");
static_assert(TEAMS == 1 || (!SPLIT && RESIDUES == 1), "tiles of equal steps");
static_assert(WGRAD ? SHARE * SHARERS % PANEL == 0 : BN % 32 == 0 && (!ACROSS_B || BN % PANEL == 0), "whole panels or shares");

// Numbers of a block's tiles: the first one, the end, and how far apart they are.
struct Share {
    int begin, end, step;
    __device__ __forceinline__ int first() const { return begin; }
    __device__ __forceinline__ int last() const { return end; }
    __device__ __forceinline__ int pace() const { return step; }
};
struct EqualShare {  // of all tiles; what the launch knows takes no register
    int pieces;
    __device__ __forceinline__ int first() const { return (int)blockIdx.x; }
    __device__ __forceinline__ int last() const { return pieces; }
    __device__ __forceinline__ int pace() const { return (int)gridDim.x; }
};

// Of a strided dgrad, tiles that no tap reaches are ends alone, and blocks behind the `busy_blocks` first ones have nothing else.
template <class Fields>
__device__ __forceinline__ auto share_of(const Fields& p, int pieces, int) -> decltype((int)p.busy_blocks, Share{}) {
    const int busy = (int)p.busy_blocks, reached = (int)p.reached, block = (int)blockIdx.x;
    if (block < busy) return {block, reached, busy};
    return {reached + block - busy, pieces, (int)gridDim.x - busy};
}
template <class Fields> __device__ __forceinline__ EqualShare share_of(const Fields&, int pieces, long) { return {pieces}; }

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, BLOCKS) hopper_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const shared_t ring_a = shared_address(memory), ring_b = ring_a + STAGES * A_BYTES;
    const shared_t full = ring_a + RING_BYTES, empty = full + 8 * STAGES;
    [[maybe_unused]] const shared_t turns = empty + 8 * STAGES;  // one of each team
    if (threadIdx.x == 0) {
        begin_ring<STAGES>(full, empty, CONSUMERS * SPEAKERS);
        if constexpr (TEAMS > 1)
            for (int i = 0; i < TEAMS; ++i) init_barrier(turns + 8 * i, 1);
        publish_barriers();
        #pragma unroll
        for (int i = 0; i < RESIDUES; ++i) fetch_map(p.gathered[i]);
        fetch_map(p.plain[0]);
        fetch_residual_map(p);
    }
    __syncthreads();
    greet_cluster();
    if (p.leaves_room) let_next_start();  // on multiprocessors without a block
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const auto share = share_of(p, (int)p.tiles * (SPLIT ? (int)p.parts : 1), 0);
    Turn<STAGES> turn;
    if (warpgroup == 0) {
        give_registers<COPYING_REGISTERS>();
        if (warp == 0 && is_elected()) {
            bool is_first = true;
            const auto slot = [&](shared_t& a, shared_t& b, shared_t& barrier, int bytes = COPIED_BYTES) {
                if (is_first) wait_for_launch_before();
                is_first = false;
                await_phase(empty + 8 * turn.stage, turn.parity ^ 1);
                barrier = full + 8 * turn.stage;
                announce(barrier, bytes);
                a = ring_a + turn.stage * A_BYTES;
                b = ring_b + turn.stage * B_BYTES;
                turn.advance();
            };
            for (int number = share.first(); number < share.last(); number += share.pace()) {
                const Work w = work_of(p, piece_at(p, number));
                fill(p, w, slot);
                copy_residual(p, w, slot);
            }
        }
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        wait_for_launch_before();
        const int team = TEAMS > 1 ? (warpgroup - 1) / CONSUMERS : 0, consumer = warpgroup - 1 - team * CONSUMERS;
        [[maybe_unused]] const int taken = TEAMS > 1 ? (int)p.depth[0] + STAGES_TAKEN : 0;  // stages, by a tile
        [[maybe_unused]] int turn_parity = team == 0;  // nobody is before the first
        if (TEAMS > 1) turn.skip(team * taken);
        const bool speaks = threadIdx.x % (128 / SPEAKERS) == 0;
        Accumulator sum[MI][SUMS], promoted[MI][SUMS];
        const auto clear = [](Accumulator (&values)[MI][SUMS]) {
            #pragma unroll
            for (int j = 0; j < MI; ++j)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) values[j][i] = 0;
        };
        Accumulator (&result)[MI][SUMS] = PROMOTED > 0 ? promoted : sum;
        clear(sum);
        bool is_real = !REHEARSES;
        for (int number = share.first() + team * share.pace(); number < share.last();) {
            Work w = work_of(p, piece_at(p, number));
            if (!is_real) w.last = w.first;
            // A tile's first products begin its sums. A residue that no tap reaches has none, nor has a part beyond the depth.
            if constexpr (PROMOTED > 0) clear(promoted);
            if (!BEGUN_BY_PRODUCTS || ((SPLIT || RESIDUES > 1) && w.first == w.last)) clear(sum);
            // A team waits for its first stage when the other one has met its last: phases have two names only.
            if (TEAMS > 1 && is_real) {
                await_phase(turns + 8 * team, turn_parity);
                turn_parity ^= 1;
            }
            int previous = -1;
            #pragma unroll UNROLL
            for (int step = w.first; step < w.last; ++step) {
                // Steps whose products are in the sums.
                const int added = PROMOTED > 0 ? (step - w.first) % PROMOTED : BEGUN_BY_PRODUCTS ? step - w.first : 1;
                await_phase(full + 8 * turn.stage, turn.parity);
                const matrix_t a = matrix_at<ACROSS_A>(ring_a + turn.stage * A_BYTES + consumer * (MI * PANEL_BYTES));
                const matrix_t b = matrix_at<ACROSS_B>(ring_b + turn.stage * B_BYTES);
                #pragma unroll
                for (int j = 0; j < MI; ++j) pin(sum[j]);
                products_begin();
                #pragma unroll
                for (int k = 0; k < 4; ++k)
                    #pragma unroll
                    for (int j = 0; j < MI; ++j)
                        multiply(
                            sum[j], a + j * (PANEL_BYTES >> 4) + k * NEXT_K<ACROSS_A>, b + k * NEXT_K<ACROSS_B>,
                            k == 0 ? added : 1
                        );
                products_end();
                const bool is_promoted = PROMOTED > 0 && (added == PROMOTED - 1 || step + 1 == w.last);
                if (is_promoted) await_products<0>();
                else await_products<1>();
                // The step before this one is done: its stage may be filled again.
                if (previous >= 0 && speaks) arrive(empty + 8 * previous);
                previous = turn.stage;
                turn.advance();
                if (is_promoted) {
                    #pragma unroll
                    for (int j = 0; j < MI; ++j) {
                        pin(sum[j]);
                        #pragma unroll
                        for (int i = 0; i < SUMS; ++i) promoted[j][i] += sum[j][i];
                    }
                }
            }
            if (TEAMS > 1 && is_real && threadIdx.x % 128 == 0) arrive(turns + 8 * ((team + 1) % TEAMS));
            // Where results go, and what the epilogue reads for all rows, while the last products run.
            Placed rows[MI];
            Held held[BLOCKS_OF_TILE];
            if constexpr (!SPLIT && !PAIRED) {
                #pragma unroll
                for (int j = 0; j < MI; ++j) {
                    rows[j] = placed_rows(p, w, consumer, j);
                    rows[j].is_inside[0] &= is_real;
                    rows[j].is_inside[1] &= is_real;
                }
                if (KEEPS_AHEAD)
                    #pragma unroll
                    for (int block = 0; block < BLOCKS_OF_TILE; ++block) keep_piece(p, piece_of(p, w, rows[0], block, 0), held[block]);
            }
            await_products<0>();
            if (is_real && number + share.pace() >= share.last()) let_next_start();
            #pragma unroll
            for (int j = 0; j < MI; ++j) pin(sum[j]);
            if (previous >= 0 && speaks) arrive(empty + 8 * previous);
            if constexpr (SPLIT) {
                leave_parts(p, w, number, consumer, memory + RING_BYTES + 16 * STAGES, result);
            } else {
                Turn<STAGES> after = turn;
                if (PAIRED && is_real) await_residual(full, turn);
                #pragma unroll
                for (int j = 0; j < MI; ++j) {
                    if constexpr (PAIRED) {
                        leave_pairs(p, w, consumer, j, is_real, result[j], [&](Held& held, int channel, int pixel) {
                            read_pair(memory, turn, held, is_real, channel, pixel);
                        });
                    } else {
                        const int row = (consumer * MI + j) * 64 + warp * 16 + (int)threadIdx.x % 32 / 4;
                        after = turn;
                        #pragma unroll
                        for (int block = 0; block < BLOCKS_OF_TILE; ++block)
                            leave_block(
                                p, w, rows[j], block, block_of_sums(result[j], block).at, held[block], KEEPS_AHEAD,
                                [&](Held& with, int block, int h) {
                                    read_residual(memory, full, empty, after, with, row + 8 * h, is_real, j + 1 == MI, block, h);
                                }
                            );
                    }
                }
                if (PAIRED && is_real) free_residual(empty, after);
                if (is_real) turn = after;
            }
            if (is_real) {
                number += TEAMS * share.pace();
                if (TEAMS > 1) turn.skip((TEAMS - 1) * taken);
            }
            is_real = true;
        }
    }
}
