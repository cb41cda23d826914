// Convolutions on the tensor cores of compute capability 9.0 whose filters stay in shared memory.
//
// A block has TILE_N columns for as long as it runs: all taps and channels of them are copied once, a step of k at a time.
// Each of its CONSUMER_WARPGROUPS has 64 pixels of the result and a ring of STAGES of its own, filled by a warp of its own: the copy
// unit walks through the image tap by tap, at any stride. Consumers do not wait for each other, so one's results leave
// while the others multiply. What the epilogue reads for a lane's columns stays in registers where they suffice.

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);
constexpr int A_BYTES = SLAB_BYTES, B_BYTES = TILE_N * SWIZZLE_BYTES;
constexpr bool CLEAR_BY_SCALE_D = SPARE_REGISTERS;
constexpr bool KEEPS_ALL = SPARE_REGISTERS && ACCUMS + TILE_N / 32 * (int)sizeof(EpilogueOperands) / 4 + 40 <= CONSUMER_REGS;
static_assert(CONSUMER_WARPGROUPS <= 3 && TILE_N % 32 == 0, "a warp for each consumer and one for filters, whole blocks of columns");
static_assert(!FILTER_MN_MAJOR, "filters lie along k");

template <int SLICES> __device__ __forceinline__ void multiply_step(Accum (&sum)[ACCUMS], smem_desc_t a, smem_desc_t b, int add) {
    #pragma unroll
    for (int k = 0; k < SLICES; ++k) wgmma_ss(sum, a + k * DESC_STEP_K<false>, b + k * DESC_STEP_K<false>, k == 0 ? add : 1);
}

// A tap and a block of channels, in the order in which steps of k follow each other.
struct Step { Tap tap; int block; };

__device__ __forceinline__ void next_step(const Params& p, Step& step) {
    if (++step.block == (int)p.channel_blocks) step.block = 0, advance_tap(p, 0, step.tap);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_weight_stationary(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int depth = (int)p.depth[0], tiles = (int)p.tiles_m[0], across = (int)p.tiles_n;
    const smem_addr_t filters = smem_addr(memory), rings = filters + depth * B_BYTES;
    const smem_addr_t full = rings + CONSUMER_WARPGROUPS * STAGES * A_BYTES, empty = full + 8 * CONSUMER_WARPGROUPS * STAGES;
    const smem_addr_t landed = empty + 8 * CONSUMER_WARPGROUPS * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<CONSUMER_WARPGROUPS * STAGES>(full, empty, 1);
        for (int i = 0; i < depth; ++i) mbarrier_init(landed + 8 * i, 1);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    if (p.trigger_early) pdl_trigger();  // on multiprocessors without a block
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tile_n = (int)blockIdx.x % across, first = (int)blockIdx.x / across, pace = (int)gridDim.x / across;
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp > CONSUMER_WARPGROUPS || !elect_one()) return;
        Step step{};
        if (warp == CONSUMER_WARPGROUPS) {
            pdl_wait();
            #pragma unroll 1
            for (int i = 0; i < depth; ++i, next_step(p, step)) {
                int in_filter = (int)p.filter_start[0];
                #pragma unroll
                for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += step.tap.at[d] * (int)p.filter_step[d];
                const smem_addr_t to = filters + i * B_BYTES, barrier = landed + 8 * i;
                mbarrier_expect_tx(barrier, B_BYTES);
                if constexpr (PERMUTE_N)
                    tma_load_tile(
                        to, p.dense_map[0], barrier, in_filter * (int)p.tap_stride + step.block * TILE_K, 0, 0, 0,
                        tile_n * TILE_N / (4 * VEC_N)
                    );
                else tma_load_tile(to, p.dense_map[0], barrier, step.block * TILE_K, in_filter, tile_n * TILE_N);
            }
            return;
        }
        const smem_addr_t ring = rings + warp * STAGES * A_BYTES, barriers = 8 * warp * STAGES;
        bool is_first = true;
        #pragma unroll 1
        for (int tile = first + pace * warp; tile < tiles; tile += pace * CONSUMER_WARPGROUPS) {
            int start[3], offset[3];
            const Pixel pixel = decode_pixel(p, 0, tile * SLAB_ROWS);
            im2col_start(p, 0, pixel, start);
            step = Step{};
            #pragma unroll 1
            for (int i = 0; i < depth; ++i, next_step(p, step)) {
                tap_offset(p, 0, step.tap, offset);
                if (is_first) pdl_wait();
                is_first = false;
                mbarrier_wait_parity(empty + barriers + 8 * pipe.stage, pipe.phase ^ 1);
                mbarrier_expect_tx(full + barriers + 8 * pipe.stage, A_BYTES);
                tma_load_im2col<SPATIAL>(
                    ring + pipe.stage * A_BYTES, p.im2col_map[0], full + barriers + 8 * pipe.stage, step.block * TILE_K, pixel.n, start,
                    offset
                );
                pipe.advance();
            }
        }
        return;
    }
    alloc_registers<CONSUMER_REGS>();
    pdl_wait();
    const int consumer = warpgroup - 1, stages = consumer * STAGES;
    const bool releases = threadIdx.x % 128 == 0;
    Accum sum[ACCUMS];
    const auto clear = [&] {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) sum[i] = 0;
    };
    clear();
    WorkTile w{};
    w.tile_n = tile_n;
    // What the epilogue reads for a lane's columns stays as well.
    EpilogueOperands held[TILE_N / 32];
    if constexpr (KEEPS_ALL) {
        const RowCoords any = row_coords_at(p, w, 0);
        #pragma unroll
        for (int block = 0; block < TILE_N / 32; ++block) load_epilogue_operands(p, fragment_slice(p, w, any, block, 0), held[block]);
    }
    #pragma unroll 1
    for (int tile = first + pace * consumer; tile < tiles; tile += pace * CONSUMER_WARPGROUPS) {
        if constexpr (!CLEAR_BY_SCALE_D) clear();
        int previous = -1, block = 0;
        #pragma unroll 1
        for (int i = 0; i < depth; ++i) {
            mbarrier_wait_parity(landed + 8 * i, 0);
            mbarrier_wait_parity(full + 8 * (stages + pipe.stage), pipe.phase);
            const smem_desc_t a = make_desc<false>(rings + (stages + pipe.stage) * A_BYTES);
            const smem_desc_t b = make_desc<false>(filters + i * B_BYTES);
            const int add = CLEAR_BY_SCALE_D ? i : 1;
            fence_accumulators(sum);
            wgmma_fence();
            // The last 128 bytes of channels may be filled in part only; what lies beyond is zeros in the image.
            if (LAST_SLICES == 4 || ++block < (int)p.channel_blocks) {
                multiply_step<4>(sum, a, b, add);
            } else {
                multiply_step<LAST_SLICES>(sum, a, b, add);
                block = 0;
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (previous >= 0 && releases) mbarrier_arrive(empty + 8 * (stages + previous));
            previous = pipe.stage;
            pipe.advance();
        }
        const RowCoords rows = row_coords_at(p, w, tile * 64 + warp * 16 + (int)threadIdx.x % 32 / 4);
        wgmma_wait<0>();
        if (tile + pace * CONSUMER_WARPGROUPS >= tiles) pdl_trigger();
        fence_accumulators(sum);
        if (releases) mbarrier_arrive(empty + 8 * (stages + previous));
        #pragma unroll
        for (int block = 0; block < TILE_N / 32; ++block)
            store_column_block(p, w, rows, block, sum + block * 16, held[block], KEEPS_ALL, NoResidual());
    }
}
