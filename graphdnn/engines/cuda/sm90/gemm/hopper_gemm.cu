// Persistent, warp-specialized GEMM by wgmma for sm_90a: convolutions as implicit GEMM (fprop, dgrad, wgrad) and batched matrix products.
//
//   D[m, n] = epilogue(sum over k of A[m, k] * B[k, n])
//
// Tile:       TILE_M x TILE_N of D. A K tile has 128 bytes of K of each row and column (conv_work_tile.cuh).
// Pipeline:   STAGES stages. TMA bytes complete `full`; RELEASES arrivals of each consumer warpgroup complete `empty`.
// Warp roles: warpgroup 0 is the producer; one elected thread issues TMA. CONSUMER_WARPGROUPS warpgroups issue wgmma on one tile, with
//             A and B in shared memory. PINGPONG_GROUPS > 1: so many groups of consumers alternate tiles, so that the epilogue of one
//             group overlaps the main loop of the other.
// Layout:     shared memory has the stages of A, the stages of B, and the barriers; the 128-byte swizzle. SPLIT_K: the DSMEM buffer of
//             split_k_cluster.cuh follows.
// Epilogue:   accumulators pass through the generated operations in registers and are stored (epilogue_store.cuh). SPLIT_K: partial
//             sums go to memory or through a cluster (split_k_workspace.cuh, split_k_cluster.cuh).
// Precision:  PROMOTION_INTERVAL > 0: tensor cores keep too few bits of a sum (fp8). After so many K tiles the accumulators are added to
//             fp32 sums in registers, and begin anew.
// Warm-up:    before its first tile, a consumer runs an epilogue without K tiles and without stores, while the first TMA loads are in
//             flight. That brings its instructions and the column operands into the caches.
//
// Required constants (from the generator), besides those of conv_work_tile.cuh and epilogue_store.cuh:
//   STAGES                       stages of the pipeline, at least 2
//   LOADED_ROWS                  rows of A that TMA loads, at most TILE_M; the results of the other rows are not stored
//   PINGPONG_GROUPS              1 (cooperative) or 2 (ping-pong); ping-pong needs tiles of equally many K tiles
//   CTAS_PER_SM                  CTAs that share a multiprocessor, 1 or 2
//   PRODUCER_REGS                registers of a producer thread
//   A_MN_MAJOR, B_MN_MAJOR       the operand is MN-major; it is K-major otherwise
//   UNROLL                       K tiles that the main loop unrolls
//   PROMOTION_INTERVAL           K tiles between promotions, 0 without promotion
//   HAS_EPILOGUE_CTAS            some CTAs have only tiles that no tap reaches: p.mainloop_ctas, p.mainloop_tiles
//
// Variants (from the generator): IM2COL_PRODUCER: 1: a convolution; 0: a matrix product. RESIDUAL_TILE: 1: TMA loads a
// residual for the epilogue. SPLIT_K_IN_CLUSTER: 1: the CTAs of a cluster add the splits of a tile; 0: another launch.

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "split_k_partials.cuh"
#include "split_k_tile.cuh"
#if IM2COL_PRODUCER
#include "conv_producer.cuh"
#else
#include "gemm_producer.cuh"
#endif
#if RESIDUAL_TILE
#include "hopper_residual.cuh"
#else
#include "hopper_no_residual.cuh"
#endif
#if SPLIT_K_IN_CLUSTER
#include "split_k_cluster.cuh"
#else
#include "split_k_workspace.cuh"
#endif

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS * PINGPONG_GROUPS + 1);
constexpr int STAGE_A_BYTES = TILE_M * SWIZZLE_BYTES, STAGE_B_BYTES = (WGRAD ? LOADED_TAP_BLOCKS * SLAB_ROWS : TILE_N) * SWIZZLE_BYTES, STAGES_BYTES = STAGES * (STAGE_A_BYTES + STAGE_B_BYTES);
constexpr int TX_BYTES = LOADED_ROWS * SWIZZLE_BYTES + STAGE_B_BYTES;
// The first wgmma of a tile overwrites the accumulators. Where registers are scarce they are cleared instead: otherwise the accumulators
// of the previous tile would stay live during its epilogue.
constexpr bool CLEAR_BY_SCALE_D = SPARE_REGISTERS;
constexpr bool WARM_UP = !SPLIT_K;
// Column operands are loaded while the last wgmma group runs, if registers hold them besides the accumulators.
constexpr int LIVE_ACCUMS = (PROMOTION_INTERVAL > 0 ? 2 : 1) * MMA_TILES_M * ACCUMS, PREFETCHED_REGISTERS = COLUMN_BLOCKS * (int)sizeof(EpilogueOperands) / 4;
constexpr bool PREFETCHES_OPERANDS = SPARE_REGISTERS && LIVE_ACCUMS + PREFETCHED_REGISTERS + 40 <= CONSUMER_REGS;
static_assert(!WGRAD || !(SWAP_AB || FILTER_MN_MAJOR || PERMUTE_N), "a filter gradient reads no filter");
static_assert(TILE_M % (64 * CONSUMER_WARPGROUPS) == 0, "each consumer warpgroup has whole 64-row slabs");
static_assert(PINGPONG_GROUPS == 1 || (!SPLIT_K && RESIDUES == 1), "ping-pong needs tiles of equally many K tiles");
static_assert(WGRAD ? TAIL_COLUMNS * TAIL_SHARERS % SLAB_ROWS == 0 : TILE_N % 32 == 0 && (!B_MN_MAJOR || TILE_N % SLAB_ROWS == 0), "slabs are whole, or tiles share them");

// The work items of a CTA: from `begin` to `end` at a distance of `step`.
struct TileRange {
    int begin, end, step;
    __device__ __forceinline__ int first() const { return begin; }
    __device__ __forceinline__ int last() const { return end; }
    __device__ __forceinline__ int stride() const { return step; }
};
struct EqualTileRange {  // the same for CTAs that share all items evenly; values of the launch take no registers
    int pieces;
    __device__ __forceinline__ int first() const { return (int)blockIdx.x; }
    __device__ __forceinline__ int last() const { return pieces; }
    __device__ __forceinline__ int stride() const { return (int)gridDim.x; }
};

// A strided dgrad has tiles that no tap reaches, which are epilogues alone. The CTAs from `mainloop_ctas` on have only these.
template <class Fields> __device__ __forceinline__ auto tile_range_of(const Fields& p, int pieces) {
    if constexpr (HAS_EPILOGUE_CTAS) {
        const int busy = (int)p.mainloop_ctas, mainloop_tiles = (int)p.mainloop_tiles, block = (int)blockIdx.x;
        if (block < busy) return TileRange{block, mainloop_tiles, busy};
        return TileRange{mainloop_tiles + block - busy, pieces, (int)gridDim.x - busy};
    } else {
        return EqualTileRange{pieces};
    }
}

__device__ __forceinline__ void clear(Accum (&values)[MMA_TILES_M][ACCUMS]) {
    #pragma unroll
    for (int j = 0; j < MMA_TILES_M; ++j)
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) values[j][i] = 0;
}

// Adds the accumulators to the promoted sums, in fp32.
__device__ __forceinline__ void promote(Accum (&promoted)[MMA_TILES_M][ACCUMS], Accum (&accum)[MMA_TILES_M][ACCUMS]) {
    #pragma unroll
    for (int j = 0; j < MMA_TILES_M; ++j) {
        fence_accumulators(accum[j]);
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) promoted[j][i] += accum[j][i];
    }
}

// The shared memory of the pipeline, as window addresses.
struct PipelineSmem { smem_addr_t a, b, full, empty; };

// The main loop of a work tile. Returns the stage that the last wgmma group reads: it is still running. -1: the tile has no K tiles.
__device__ __forceinline__ int mainloop(
    const PipelineSmem& smem, const WorkTile& w, int consumer, bool releases, PipelineState<STAGES>& pipe,
    Accum (&accum)[MMA_TILES_M][ACCUMS], Accum (&promoted)[MMA_TILES_M][ACCUMS]
) {
    int unreleased = -1;
    #pragma unroll UNROLL
    for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
        // K tiles that the accumulators contain already: the first wgmma overwrites them where it is 0.
        const int accumulated = PROMOTION_INTERVAL > 0 ? (k_tile - w.k_begin) % PROMOTION_INTERVAL : CLEAR_BY_SCALE_D ? k_tile - w.k_begin : 1;
        mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);
        const smem_desc_t a = make_desc<A_MN_MAJOR>(smem.a + pipe.stage * STAGE_A_BYTES + consumer * (MMA_TILES_M * SLAB_BYTES));
        const smem_desc_t b = make_desc<B_MN_MAJOR>(smem.b + pipe.stage * STAGE_B_BYTES);
        #pragma unroll
        for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(accum[j]);
        wgmma_fence();
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j)
                wgmma_ss(
                    accum[j], a + j * (SLAB_BYTES >> 4) + k * DESC_STEP_K<A_MN_MAJOR>, b + k * DESC_STEP_K<B_MN_MAJOR>,
                    k == 0 ? accumulated : 1
                );
        wgmma_commit();
        const bool promotes = PROMOTION_INTERVAL > 0 && (accumulated == PROMOTION_INTERVAL - 1 || k_tile + 1 == w.k_end);
        if (promotes) wgmma_wait<0>();
        else wgmma_wait<1>();
        // The wgmma group of the previous K tile is complete, so the producer may fill its stage.
        if (unreleased >= 0 && releases) mbarrier_arrive(smem.empty + 8 * unreleased);
        unreleased = pipe.stage;
        pipe.advance();
        if (promotes) promote(promoted, accum);
    }
    return unreleased;
}

extern "C" __global__ void SPLIT_K_CLUSTER __launch_bounds__(THREADS, CTAS_PER_SM) hopper_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t stages_a = smem_addr(memory), stages_b = stages_a + STAGES * STAGE_A_BYTES;
    const smem_addr_t full = stages_a + STAGES_BYTES, empty = full + 8 * STAGES;
    const PipelineSmem smem = {stages_a, stages_b, full, empty};
    [[maybe_unused]] const smem_addr_t order = empty + 8 * STAGES;  // ping-pong: a barrier for each group, which orders the main loops
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, CONSUMER_WARPGROUPS * RELEASES);
        if constexpr (PINGPONG_GROUPS > 1)
            for (int i = 0; i < PINGPONG_GROUPS; ++i) mbarrier_init(order + 8 * i, 1);
        fence_barrier_init();
        #pragma unroll
        for (int i = 0; i < RESIDUES; ++i) prefetch_tensormap(p.im2col_map[i]);
        prefetch_tensormap(p.dense_map[0]);
        prefetch_residual_map(p);
    }
    __syncthreads();
    cluster_arrive_relaxed();
    if (p.trigger_early) pdl_trigger();  // the next launch starts on multiprocessors that have no CTA of this one
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const auto range = tile_range_of(p, (int)p.tiles * (SPLIT_K ? (int)p.splits : 1));
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        // producer: one thread loads the K tiles and the residual of each work tile
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            bool is_first = true;
            const auto acquire = [&](smem_addr_t& a, smem_addr_t& b, smem_addr_t& barrier, int bytes = TX_BYTES) {
                if (is_first) pdl_wait();
                is_first = false;
                mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                barrier = full + 8 * pipe.stage;
                mbarrier_expect_tx(barrier, bytes);
                a = stages_a + pipe.stage * STAGE_A_BYTES;
                b = stages_b + pipe.stage * STAGE_B_BYTES;
                pipe.advance();
            };
            for (int item = range.first(); item < range.last(); item += range.stride()) {
                const WorkTile w = decode_work_tile(p, split_k_item(p, item));
                load_k_tiles(p, w, acquire);
                tma_load_residual(p, w, acquire);
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int group = PINGPONG_GROUPS > 1 ? (warpgroup - 1) / CONSUMER_WARPGROUPS : 0, consumer = warpgroup - 1 - group * CONSUMER_WARPGROUPS;
        [[maybe_unused]] const int stages_per_tile = PINGPONG_GROUPS > 1 ? (int)p.k_tiles[0] + RESIDUAL_STAGES : 0;
        [[maybe_unused]] int order_parity = group == 0;  // no main loop precedes the first one of group 0
        if (PINGPONG_GROUPS > 1) pipe.skip(group * stages_per_tile);
        const bool releases = threadIdx.x % (128 / RELEASES) == 0;
        Accum accum[MMA_TILES_M][ACCUMS], promoted[MMA_TILES_M][ACCUMS];
        Accum (&result)[MMA_TILES_M][ACCUMS] = PROMOTION_INTERVAL > 0 ? promoted : accum;
        clear(accum);
        bool is_live = !WARM_UP;
        for (int item = range.first() + group * range.stride(); item < range.last();) {
            WorkTile w = decode_work_tile(p, split_k_item(p, item));
            if (!is_live) w.k_end = w.k_begin;
            // A residue that no tap reaches has no wgmma that overwrites the accumulators, nor has a split beyond the last K tile.
            if constexpr (PROMOTION_INTERVAL > 0) clear(promoted);
            if (!CLEAR_BY_SCALE_D || ((SPLIT_K || RESIDUES > 1) && w.k_begin == w.k_end)) clear(accum);
            // A parity distinguishes two phases only, so a group waits for a stage after the other group has waited for its last one.
            if (PINGPONG_GROUPS > 1 && is_live) {
                mbarrier_wait_parity(order + 8 * group, order_parity);
                order_parity ^= 1;
            }

            // main loop
            const int unreleased = mainloop(smem, w, consumer, releases, pipe, accum, promoted);
            if (PINGPONG_GROUPS > 1 && is_live && threadIdx.x % 128 == 0) mbarrier_arrive(order + 8 * ((group + 1) % PINGPONG_GROUPS));

            // epilogue: coordinates and column operands, while the last wgmma group runs
            EpilogueCoords rows[MMA_TILES_M];
            EpilogueOperands operands[COLUMN_BLOCKS];
            if constexpr (!SPLIT_K && !ROW_PAIR_EPILOGUE) {
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) {
                    rows[j] = epilogue_coords(p, w, consumer, j);
                    rows[j].is_inside[0] &= is_live;
                    rows[j].is_inside[1] &= is_live;
                }
                if (PREFETCHES_OPERANDS)
                    #pragma unroll
                    for (int block = 0; block < COLUMN_BLOCKS; ++block) load_epilogue_operands(p, fragment_slice(p, w, rows[0], block, 0), operands[block]);
            }
            wgmma_wait<0>();
            if (is_live && item + range.stride() >= range.last()) pdl_trigger();
            #pragma unroll
            for (int j = 0; j < MMA_TILES_M; ++j) fence_accumulators(accum[j]);
            if (unreleased >= 0 && releases) mbarrier_arrive(empty + 8 * unreleased);

            // epilogue: partial sums, or results
            if constexpr (SPLIT_K) {
                reduce_splits(p, w, item, consumer, memory + STAGES_BYTES + 16 * STAGES, result);
            } else {
                PipelineState<STAGES> residual_pipe = pipe;  // the residual's stages follow the tile's last K tile
                if (ROW_PAIR_EPILOGUE && is_live) wait_residual(full, pipe);
                #pragma unroll
                for (int j = 0; j < MMA_TILES_M; ++j) {
                    if constexpr (ROW_PAIR_EPILOGUE) {
                        epilogue_store_row_pairs(p, w, consumer, j, is_live, result[j], [&](EpilogueOperands& operands, int channel, int pixel) {
                            read_residual_pair(memory, pipe, operands, is_live, channel, pixel);
                        });
                    } else {
                        const int row = (consumer * MMA_TILES_M + j) * 64 + warp * 16 + (int)threadIdx.x % 32 / 4;
                        residual_pipe = pipe;
                        #pragma unroll
                        for (int block = 0; block < COLUMN_BLOCKS; ++block)
                            store_column_block(
                                p, w, rows[j], block, column_block(result[j], block).accum, operands[block], PREFETCHES_OPERANDS,
                                [&](EpilogueOperands& operands, int block, int h) {
                                    read_residual(memory, full, empty, residual_pipe, operands, row + 8 * h, is_live, j + 1 == MMA_TILES_M, block, h);
                                }
                            );
                    }
                }
                if (ROW_PAIR_EPILOGUE && is_live) release_residual(empty, residual_pipe);
                if (is_live) pipe = residual_pipe;
            }
            if (is_live) {
                item += PINGPONG_GROUPS * range.stride();
                if (PINGPONG_GROUPS > 1) pipe.skip((PINGPONG_GROUPS - 1) * stages_per_tile);
            }
            is_live = true;
        }
    }
}
