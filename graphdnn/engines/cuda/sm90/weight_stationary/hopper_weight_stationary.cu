// Weight-stationary convolution (fprop) by wgmma for sm_90a: the filters of a CTA's columns stay in shared memory.
//
//   y[pixel, k] = epilogue(sum over taps and c of x[pixel at tap, c] * filter[k, tap, c])
//
// Tile:       64 pixels of y by TILE_N channels for each consumer warpgroup, implicit GEMM. A K tile is 128 bytes of channels of one tap.
//             A CTA has the same columns in all its tiles; its tiles are a grid stride apart.
// Pipeline:   each consumer has a pipeline of its own with STAGES stages of A, so no consumer waits for another one, and the epilogue of
//             one overlaps the main loop of the others. TMA bytes complete `full`, and one arrival completes `empty`. The filters are
//             loaded once; each K tile of them has a barrier in `filter_full`.
// Warp roles: warpgroup 0 produces: warp i loads the pixels of consumer i by TMA im2col, at any traversal stride, and warp
//             CONSUMER_WARPGROUPS loads the filters. The other warpgroups issue wgmma with A and B in shared memory.
// Layout:     shared memory has the K tiles of the filters, the stages of the consumers, and the barriers; 128-byte swizzle. Images are
//             NHWC and filters K-major.
// Epilogue:   generated operations in registers, then direct stores (epilogue_store.cuh). Column operands stay in registers for the
//             whole launch where registers suffice.
//
// Required constants (from the generator), besides those of conv_work_tile.cuh and epilogue_store.cuh:
//   CONSUMER_WARPGROUPS   2 or 3; TILE_M is 64 times as many
//   STAGES                stages of each consumer's pipeline, at least 2
//   PRODUCER_REGS         registers of a producer thread
//   TAIL_MMA_STEPS        MMA K steps (32 bytes) that have channels in the last 128 bytes of a tap, 1 to 4

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);
constexpr int STAGE_BYTES = SLAB_BYTES, FILTER_K_TILE_BYTES = TILE_N * SWIZZLE_BYTES;
constexpr bool CLEAR_BY_SCALE_D = SPARE_REGISTERS;  // the first wgmma of a tile overwrites the accumulators
constexpr bool KEEPS_OPERANDS = SPARE_REGISTERS && ACCUMS + TILE_N / 32 * (int)sizeof(EpilogueOperands) / 4 + 40 <= CONSUMER_REGS;
static_assert(CONSUMER_WARPGROUPS <= 3 && TILE_N % 32 == 0, "warpgroup 0 has a warp for each consumer and one for the filters; column blocks are whole");
static_assert(!FILTER_MN_MAJOR, "filters are K-major");

template <int STEPS> __device__ __forceinline__ void mma_k_tile(Accum (&accum)[ACCUMS], smem_desc_t a, smem_desc_t b, int scale_d) {
    #pragma unroll
    for (int k = 0; k < STEPS; ++k) wgmma_ss(accum, a + k * DESC_STEP_K<false>, b + k * DESC_STEP_K<false>, k == 0 ? scale_d : 1);
}

// The tap and the channel block of a K tile.
struct KTile { Tap tap; int channel_block; };

__device__ __forceinline__ void advance_k_tile(const Params& p, KTile& k_tile) {
    if (++k_tile.channel_block == (int)p.channel_blocks) k_tile.channel_block = 0, advance_tap(p, 0, k_tile.tap);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_weight_stationary(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int k_tiles = (int)p.k_tiles[0], tiles_m = (int)p.tiles_m[0], tiles_n = (int)p.tiles_n;
    const smem_addr_t filters = smem_addr(memory), stages = filters + k_tiles * FILTER_K_TILE_BYTES;
    const smem_addr_t full = stages + CONSUMER_WARPGROUPS * STAGES * STAGE_BYTES, empty = full + 8 * CONSUMER_WARPGROUPS * STAGES;
    const smem_addr_t filter_full = empty + 8 * CONSUMER_WARPGROUPS * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<CONSUMER_WARPGROUPS * STAGES>(full, empty, 1);
        for (int i = 0; i < k_tiles; ++i) mbarrier_init(filter_full + 8 * i, 1);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    if (p.trigger_early) pdl_trigger();  // the next launch starts on multiprocessors that have no CTA of this one
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tile_n = (int)blockIdx.x % tiles_n, first_tile_m = (int)blockIdx.x / tiles_n, stride = (int)gridDim.x / tiles_n;
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp > CONSUMER_WARPGROUPS || !elect_one()) return;
        KTile k_tile{};
        if (warp == CONSUMER_WARPGROUPS) {
            // filter producer
            pdl_wait();
            #pragma unroll 1
            for (int i = 0; i < k_tiles; ++i, advance_k_tile(p, k_tile)) {
                int filter_tap = (int)p.first_filter_tap[0];
                #pragma unroll
                for (int d = 3 - SPATIAL; d < 3; ++d) filter_tap += k_tile.tap.coord[d] * (int)p.filter_tap_stride[d];
                const smem_addr_t to = filters + i * FILTER_K_TILE_BYTES, barrier = filter_full + 8 * i;
                mbarrier_expect_tx(barrier, FILTER_K_TILE_BYTES);
                if constexpr (PERMUTE_N)
                    tma_load_tile(
                        to, p.dense_map[0], barrier, filter_tap * (int)p.tap_stride + k_tile.channel_block * TILE_K, 0, 0, 0,
                        tile_n * TILE_N / (4 * VEC_N)
                    );
                else tma_load_tile(to, p.dense_map[0], barrier, k_tile.channel_block * TILE_K, filter_tap, tile_n * TILE_N);
            }
            return;
        }
        // pixel producer of consumer `warp`
        const smem_addr_t consumer_stages = stages + warp * STAGES * STAGE_BYTES, barriers = 8 * warp * STAGES;
        bool is_first = true;
        #pragma unroll 1
        for (int tile_m = first_tile_m + stride * warp; tile_m < tiles_m; tile_m += stride * CONSUMER_WARPGROUPS) {
            int start[3], offset[3];
            const Pixel pixel = decode_pixel(p, 0, tile_m * SLAB_ROWS);
            im2col_start(p, 0, pixel, start);
            k_tile = KTile{};
            #pragma unroll 1
            for (int i = 0; i < k_tiles; ++i, advance_k_tile(p, k_tile)) {
                tap_offset(p, 0, k_tile.tap, offset);
                if (is_first) pdl_wait();
                is_first = false;
                mbarrier_wait_parity(empty + barriers + 8 * pipe.stage, pipe.phase ^ 1);
                mbarrier_expect_tx(full + barriers + 8 * pipe.stage, STAGE_BYTES);
                tma_load_im2col<SPATIAL>(
                    consumer_stages + pipe.stage * STAGE_BYTES, p.im2col_map[0], full + barriers + 8 * pipe.stage,
                    k_tile.channel_block * TILE_K, pixel.n, start, offset
                );
                pipe.advance();
            }
        }
        return;
    }
    alloc_registers<CONSUMER_REGS>();
    pdl_wait();
    const int consumer = warpgroup - 1, first_stage = consumer * STAGES;
    const bool releases = threadIdx.x % 128 == 0;
    Accum accum[ACCUMS];
    const auto clear = [&] {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) accum[i] = 0;
    };
    clear();
    WorkTile w{};
    w.tile_n = tile_n;
    EpilogueOperands operands[TILE_N / 32];
    if constexpr (KEEPS_OPERANDS) {
        const RowCoords any_rows = row_coords_at(p, w, 0);
        #pragma unroll
        for (int block = 0; block < TILE_N / 32; ++block) load_epilogue_operands(p, fragment_slice(p, w, any_rows, block, 0), operands[block]);
    }
    #pragma unroll 1
    for (int tile_m = first_tile_m + stride * consumer; tile_m < tiles_m; tile_m += stride * CONSUMER_WARPGROUPS) {
        // main loop
        if constexpr (!CLEAR_BY_SCALE_D) clear();
        int unreleased = -1, channel_block = 0;
        #pragma unroll 1
        for (int i = 0; i < k_tiles; ++i) {
            mbarrier_wait_parity(filter_full + 8 * i, 0);
            mbarrier_wait_parity(full + 8 * (first_stage + pipe.stage), pipe.phase);
            const smem_desc_t a = make_desc<false>(stages + (first_stage + pipe.stage) * STAGE_BYTES);
            const smem_desc_t b = make_desc<false>(filters + i * FILTER_K_TILE_BYTES);
            const int scale_d = CLEAR_BY_SCALE_D ? i : 1;
            fence_accumulators(accum);
            wgmma_fence();
            // The last channel block of a tap may be partial. Only its MMA K steps with channels are multiplied; TMA fills the rest with 0.
            if (TAIL_MMA_STEPS == 4 || ++channel_block < (int)p.channel_blocks) {
                mma_k_tile<4>(accum, a, b, scale_d);
            } else {
                mma_k_tile<TAIL_MMA_STEPS>(accum, a, b, scale_d);
                channel_block = 0;
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (unreleased >= 0 && releases) mbarrier_arrive(empty + 8 * (first_stage + unreleased));
            unreleased = pipe.stage;
            pipe.advance();
        }

        // epilogue
        const RowCoords rows = row_coords_at(p, w, tile_m * 64 + warp * 16 + (int)threadIdx.x % 32 / 4);
        wgmma_wait<0>();
        if (tile_m + stride * CONSUMER_WARPGROUPS >= tiles_m) pdl_trigger();
        fence_accumulators(accum);
        if (releases) mbarrier_arrive(empty + 8 * (first_stage + unreleased));
        #pragma unroll
        for (int block = 0; block < TILE_N / 32; ++block)
            store_column_block(p, w, rows, block, accum + block * 16, operands[block], KEEPS_OPERANDS, NoResidual());
    }
}
