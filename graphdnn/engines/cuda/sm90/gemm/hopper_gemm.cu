// Convolutions as matrix products, and matrix products, on the tensor cores of compute capability 9.0.
//
// A block has one warpgroup that copies and CONSUMER_WARPGROUPS that multiply. A thread of the first fills a ring of STAGES: TILE_M rows of
// a and TILE_N columns of b, 128 bytes of k deep, moved by the copy unit, which also finds the pixels of a tap and the zeros
// around the image. The others multiply from shared memory into registers, MMA_TILES_M x 64 rows each, and pass the sums through the
// epilogue while the ring fills for the block's next tile.
//
// PINGPONG_GROUPS of consumers have tiles of their own, in turns: the results of one leave while the other multiplies. All tiles have the same
// number of steps then, which the other team skips.
//
// Of sums that tensor cores keep with too few digits (fp8), PROMOTION_INTERVAL steps are added by them, and what these come to is
// added in registers.
//
// Before its first tile a warpgroup rehearses the end of one, without products and stores, while the first copies are on their
// way: these are some hundred instructions, which have to come from memory once, and so does what the epilogue keeps.

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS * PINGPONG_GROUPS + 1);
constexpr int STAGE_A_BYTES = TILE_M * SWIZZLE_BYTES, STAGE_B_BYTES = (WGRAD ? LOADED_TAP_BLOCKS * SLAB_ROWS : TILE_N) * SWIZZLE_BYTES, STAGES_BYTES = STAGES * (STAGE_A_BYTES + STAGE_B_BYTES);
// A tile of all of a product's rows has only LOADED_ROWS ones copied: what lies behind them are sums that nobody stores.
constexpr int TX_BYTES = LOADED_ROWS * SWIZZLE_BYTES + STAGE_B_BYTES;
// Sums that live on until the next tile's products begin them leave no register free while they leave: where there are
// too few, sums are cleared instead.
constexpr bool CLEAR_BY_SCALE_D = SPARE_REGISTERS;
constexpr bool WARM_UP = !SPLIT_K;
// What the epilogue keeps is read while the last products run, where registers hold it beside the sums.
constexpr int LIVE_ACCUMS = (PROMOTION_INTERVAL > 0 ? 2 : 1) * MMA_TILES_M * ACCUMS, PREFETCHED_REGISTERS = COLUMN_BLOCKS * (int)sizeof(EpilogueOperands) / 4;
constexpr bool PREFETCHES_OPERANDS = SPARE_REGISTERS && LIVE_ACCUMS + PREFETCHED_REGISTERS + 40 <= CONSUMER_REGS;
static_assert(!WGRAD || !(SWAP_AB || FILTER_MN_MAJOR || PERMUTE_N), "a filter gradient reads no filter");
static_assert(TILE_M % (64 * CONSUMER_WARPGROUPS) == 0, "whole panels");
static_assert(PINGPONG_GROUPS == 1 || (!SPLIT_K && RESIDUES == 1), "tiles of equal steps");
static_assert(WGRAD ? TAIL_COLUMNS * TAIL_SHARERS % SLAB_ROWS == 0 : TILE_N % 32 == 0 && (!B_MN_MAJOR || TILE_N % SLAB_ROWS == 0), "whole panels or shares");

// Numbers of a block's tiles: the first one, the end, and how far apart they are.
struct TileRange {
    int begin, end, step;
    __device__ __forceinline__ int first() const { return begin; }
    __device__ __forceinline__ int last() const { return end; }
    __device__ __forceinline__ int stride() const { return step; }
};
struct EqualTileRange {  // of all tiles; what the launch knows takes no register
    int pieces;
    __device__ __forceinline__ int first() const { return (int)blockIdx.x; }
    __device__ __forceinline__ int last() const { return pieces; }
    __device__ __forceinline__ int stride() const { return (int)gridDim.x; }
};

// Of a strided dgrad, tiles that no tap reaches are ends alone, and blocks behind the `mainloop_ctas` first ones have nothing else.
template <class Fields>
__device__ __forceinline__ auto tile_range_of(const Fields& p, int pieces, int) -> decltype((int)p.mainloop_ctas, TileRange{}) {
    const int busy = (int)p.mainloop_ctas, mainloop_tiles = (int)p.mainloop_tiles, block = (int)blockIdx.x;
    if (block < busy) return {block, mainloop_tiles, busy};
    return {mainloop_tiles + block - busy, pieces, (int)gridDim.x - busy};
}
template <class Fields> __device__ __forceinline__ EqualTileRange tile_range_of(const Fields&, int pieces, long) { return {pieces}; }

extern "C" __global__ void SPLIT_K_CLUSTER __launch_bounds__(THREADS, BLOCKS) hopper_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t ring_a = smem_addr(memory), ring_b = ring_a + STAGES * STAGE_A_BYTES;
    const smem_addr_t full = ring_a + STAGES_BYTES, empty = full + 8 * STAGES;
    [[maybe_unused]] const smem_addr_t turns = empty + 8 * STAGES;  // one of each team
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, CONSUMER_WARPGROUPS * RELEASES);
        if constexpr (PINGPONG_GROUPS > 1)
            for (int i = 0; i < PINGPONG_GROUPS; ++i) mbarrier_init(turns + 8 * i, 1);
        fence_barrier_init();
        #pragma unroll
        for (int i = 0; i < RESIDUES; ++i) prefetch_tensormap(p.im2col_map[i]);
        prefetch_tensormap(p.dense_map[0]);
        prefetch_residual_map(p);
    }
    __syncthreads();
    cluster_arrive_relaxed();
    if (p.trigger_early) pdl_trigger();  // on multiprocessors without a block
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const auto share = tile_range_of(p, (int)p.tiles * (SPLIT_K ? (int)p.splits : 1), 0);
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            bool is_first = true;
            const auto acquire = [&](smem_addr_t& a, smem_addr_t& b, smem_addr_t& barrier, int bytes = TX_BYTES) {
                if (is_first) pdl_wait();
                is_first = false;
                mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                barrier = full + 8 * pipe.stage;
                mbarrier_expect_tx(barrier, bytes);
                a = ring_a + pipe.stage * STAGE_A_BYTES;
                b = ring_b + pipe.stage * STAGE_B_BYTES;
                pipe.advance();
            };
            for (int number = share.first(); number < share.last(); number += share.stride()) {
                const WorkTile w = decode_work_tile(p, split_k_item(p, number));
                load_k_tiles(p, w, acquire);
                tma_load_residual(p, w, acquire);
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int team = PINGPONG_GROUPS > 1 ? (warpgroup - 1) / CONSUMER_WARPGROUPS : 0, consumer = warpgroup - 1 - team * CONSUMER_WARPGROUPS;
        [[maybe_unused]] const int taken = PINGPONG_GROUPS > 1 ? (int)p.depth[0] + RESIDUAL_STAGES : 0;  // stages, by a tile
        [[maybe_unused]] int turn_parity = team == 0;  // nobody is before the first
        if (PINGPONG_GROUPS > 1) pipe.skip(team * taken);
        const bool releases = threadIdx.x % (128 / RELEASES) == 0;
        Accum sum[MMA_TILES_M][ACCUMS], promoted[MMA_TILES_M][ACCUMS];
        const auto clear = [](Accum (&values)[MMA_TILES_M][ACCUMS]) {
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j)
                #pragma unroll
                for (int i = 0; i < ACCUMS; ++i) values[j][i] = 0;
        };
        Accum (&result)[MMA_TILES_M][ACCUMS] = PROMOTION_INTERVAL > 0 ? promoted : sum;
        clear(sum);
        bool is_live = !WARM_UP;
        for (int number = share.first() + team * share.stride(); number < share.last();) {
            WorkTile w = decode_work_tile(p, split_k_item(p, number));
            if (!is_live) w.last = w.first;
            // A tile's first products begin its sums. A residue that no tap reaches has none, nor has a part beyond the depth.
            if constexpr (PROMOTION_INTERVAL > 0) clear(promoted);
            if (!CLEAR_BY_SCALE_D || ((SPLIT_K || RESIDUES > 1) && w.first == w.last)) clear(sum);
            // A team waits for its first stage when the other one has met its last: phases have two names only.
            if (PINGPONG_GROUPS > 1 && is_live) {
                mbarrier_wait_parity(turns + 8 * team, turn_parity);
                turn_parity ^= 1;
            }
            int previous = -1;
            #pragma unroll UNROLL
            for (int step = w.first; step < w.last; ++step) {
                // Steps whose products are in the sums.
                const int added = PROMOTION_INTERVAL > 0 ? (step - w.first) % PROMOTION_INTERVAL : CLEAR_BY_SCALE_D ? step - w.first : 1;
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const smem_desc_t a = make_desc<A_MN_MAJOR>(ring_a + pipe.stage * STAGE_A_BYTES + consumer * (MMA_TILES_M * SLAB_BYTES));
                const smem_desc_t b = make_desc<B_MN_MAJOR>(ring_b + pipe.stage * STAGE_B_BYTES);
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(sum[j]);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < 4; ++k)
                    #pragma unroll
                    for (int j = 0; j < MMA_TILES_M; ++j)
                        wgmma_ss(
                            sum[j], a + j * (SLAB_BYTES >> 4) + k * DESC_STEP_K<A_MN_MAJOR>, b + k * DESC_STEP_K<B_MN_MAJOR>,
                            k == 0 ? added : 1
                        );
                wgmma_commit();
                const bool is_promoted = PROMOTION_INTERVAL > 0 && (added == PROMOTION_INTERVAL - 1 || step + 1 == w.last);
                if (is_promoted) wgmma_wait<0>();
                else wgmma_wait<1>();
                // The step before this one is done: its stage may be filled again.
                if (previous >= 0 && releases) mbarrier_arrive(empty + 8 * previous);
                previous = pipe.stage;
                pipe.advance();
                if (is_promoted) {
                    #pragma unroll
                    for (int j = 0; j < MMA_TILES_M; ++j) {
                        fence_accumulators(sum[j]);
                        #pragma unroll
                        for (int i = 0; i < ACCUMS; ++i) promoted[j][i] += sum[j][i];
                    }
                }
            }
            if (PINGPONG_GROUPS > 1 && is_live && threadIdx.x % 128 == 0) mbarrier_arrive(turns + 8 * ((team + 1) % PINGPONG_GROUPS));
            // Where results go, and what the epilogue reads for all rows, while the last products run.
            EpilogueCoords rows[MMA_TILES_M];
            EpilogueOperands held[COLUMN_BLOCKS];
            if constexpr (!SPLIT_K && !ROW_PAIR_EPILOGUE) {
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) {
                    rows[j] = epilogue_coords(p, w, consumer, j);
                    rows[j].is_inside[0] &= is_live;
                    rows[j].is_inside[1] &= is_live;
                }
                if (PREFETCHES_OPERANDS)
                    #pragma unroll
                    for (int block = 0; block < COLUMN_BLOCKS; ++block) load_epilogue_operands(p, fragment_slice(p, w, rows[0], block, 0), held[block]);
            }
            wgmma_wait<0>();
            if (is_live && number + share.stride() >= share.last()) pdl_trigger();
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(sum[j]);
            if (previous >= 0 && releases) mbarrier_arrive(empty + 8 * previous);
            if constexpr (SPLIT_K) {
                reduce_splits(p, w, number, consumer, memory + STAGES_BYTES + 16 * STAGES, result);
            } else {
                PipelineState<STAGES> after = pipe;
                if (ROW_PAIR_EPILOGUE && is_live) wait_residual(full, pipe);
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) {
                    if constexpr (ROW_PAIR_EPILOGUE) {
                        epilogue_store_row_pairs(p, w, consumer, j, is_live, result[j], [&](EpilogueOperands& held, int channel, int pixel) {
                            read_pair(memory, pipe, held, is_live, channel, pixel);
                        });
                    } else {
                        const int row = (consumer * MMA_TILES_M + j) * 64 + warp * 16 + (int)threadIdx.x % 32 / 4;
                        after = pipe;
                        #pragma unroll
                        for (int block = 0; block < COLUMN_BLOCKS; ++block)
                            store_column_block(
                                p, w, rows[j], block, column_block(result[j], block).at, held[block], PREFETCHES_OPERANDS,
                                [&](EpilogueOperands& with, int block, int h) {
                                    read_residual(memory, full, empty, after, with, row + 8 * h, is_live, j + 1 == MMA_TILES_M, block, h);
                                }
                            );
                    }
                }
                if (ROW_PAIR_EPILOGUE && is_live) release_residual(empty, after);
                if (is_live) pipe = after;
            }
            if (is_live) {
                number += PINGPONG_GROUPS * share.stride();
                if (PINGPONG_GROUPS > 1) pipe.skip((PINGPONG_GROUPS - 1) * taken);
            }
            is_live = true;
        }
    }
}
