// Data gradients of 32-bit floats on the tensor cores of compute capability 9.0, with filters as they lie.
//
//   rows: channels c of dx   columns: pixels   k: taps, channels of dy
//
// Tensor cores read 32-bit operands in shared memory only along k, and filters lie across it. So threads read the filters,
// as rows of the product, into registers. A stage has panels of 32 channels c, a row of 128 bytes for each of 32 k, and behind
// them the pixels of consumers side by side (ACROSS); others (DOWN) have rows of their own.
//
// Lane 4g + q gives tensor cores rows g and g + 8 of a warp's 16, k q and q + 4 of each eight. Which channel a row is, is for
// us to say: two rows of a lane are neighbours, read together, and those of g = 0, 1, 2, 3 lie so that four lines of k are
// read from all banks (parts of 16 bytes of line k are exchanged by k modulo 8).

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1), COLUMNS = TILE_N / ACROSS, ACCUMS = COLUMNS / 2;  // of a consumer
constexpr int FILTER_PANEL = 32, FILTER_BYTES = FILTER_PANEL * TILE_K * 4, RESIDUAL_SLABS = TILE_M / FILTER_PANEL;
constexpr int STAGE_A_BYTES = RESIDUAL_SLABS * FILTER_BYTES, STAGE_B_BYTES = TILE_N * SWIZZLE_BYTES;
constexpr int CALLS = VEC_WIDTH == 1 ? 2 : 1;  // of the epilogue for a pair of channels
static_assert(TILE_M == 64 * DOWN && COLUMNS % 8 == 0 && CONSUMER_WARPGROUPS == DOWN * ACROSS && TILE_K == 32, "a tile");
static_assert(SWAP_AB && FILTER_MN_MAJOR && !WGRAD && !PERMUTE_N && VEC_N == 2, "as a turned product of one residue");

// The stages of a tile: `slot(a, b, barrier)` waits for a free one.
template <class Acquire> __device__ __forceinline__ void fill_across(const Params& p, const WorkTile& w, Acquire acquire) {
    const int blocks = (int)p.channel_blocks, column = w.tile_n * TILE_M;
    int start[3], offset[3];
    const Pixel pixel = decode_pixel(p, 0, w.tile_m * TILE_N);
    im2col_start(p, 0, pixel, start);
    Tap tap = decode_tap(p, 0, 0);
    int block = 0;
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        tap_offset(p, 0, tap, offset);
        int in_filter = (int)p.filter_start[0];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += tap.at[d] * (int)p.filter_step[d];
        tma_load_im2col<SPATIAL>(b, p.im2col_map[0], barrier, block * TILE_K, pixel.n, start, offset);
        #pragma unroll
        for (int j = 0; j < RESIDUAL_SLABS; ++j)
            tma_load_tile(a + j * FILTER_BYTES, p.dense_map[0], barrier, column + j * FILTER_PANEL, in_filter, block * TILE_K);
        if (++block == blocks) block = 0, advance_tap(p, 0, tap);
    }
}

// Without a branch: the compiler sees no further than one, and makes products wait for each other that have one between.
__device__ __forceinline__ void arrive_if(bool is_so, smem_addr_t barrier) {
#ifdef __CUDA_ARCH__
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}"
                 ::"r"(barrier), "r"((int)is_so) : "memory");
#else
    if (is_so) mbarrier_arrive(barrier);
#endif
}

// Of a lane: its channel in a warp's rows, of which row g + 8 is the next one.
__device__ __forceinline__ int channel_of_lane(int warp, int g) {
    const int part = 2 * (warp % 2) + g / 4 + (g / 2 % 2) * 4;  // of 16 bytes
    return warp / 2 * FILTER_PANEL + part * 4 + g % 2 * 2;
}

constexpr int GROUPS = 2, EIGHTS = 4 / GROUPS;  // of products in a stage, and of k in each; one is slower with many columns, four with few
typedef unsigned int RowCoords[EIGHTS][4];

__device__ __forceinline__ void fence_accumulators(RowCoords& a) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < EIGHTS; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
#endif
}

__device__ __forceinline__ void read_rows(RowCoords& a, const unsigned char* panel, int upper, int lower) {
    #pragma unroll
    for (int i = 0; i < EIGHTS; ++i) {
        const unsigned long long first = *reinterpret_cast<const unsigned long long*>(panel + i * 8 * SWIZZLE_BYTES + upper);
        const unsigned long long second = *reinterpret_cast<const unsigned long long*>(panel + i * 8 * SWIZZLE_BYTES + lower);
        a[i][0] = (unsigned int)first, a[i][1] = (unsigned int)(first >> 32);
        a[i][2] = (unsigned int)second, a[i][3] = (unsigned int)(second >> 32);
    }
}

// Two neighbouring channels of each of a lane's pixels. All images' pixels are one axis of the result.
__device__ __forceinline__ void leave_pixels(const Params& p, const WorkTile& w, int channel, int first, const Accum (&sum)[ACCUMS]) {
    const int lane = (int)threadIdx.x % 32, pixels = (int)p.rows[0];
    ColumnOperands kept[CALLS];
    int at[CALLS][6];
    #pragma unroll
    for (int i = 0; i < CALLS; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) at[i][d] = 0;
        at[i][2] = channel + i < (int)p.columns ? channel + i : 0;
        load_column_operands(p, at[i], kept[i]);
    }
    #pragma unroll
    for (int n = 0; n < ACCUMS / 2; ++n) {  // columns of a lane
        const Accum pair[2] = {sum[n / 2 * 4 + n % 2], sum[n / 2 * 4 + n % 2 + 2]};
        const int pixel = first + lane % 4 * 2 + n / 2 * 8 + n % 2;
        #pragma unroll
        for (int i = 0; i < CALLS; ++i) {
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = pair[i * VEC_WIDTH + e];
            at[i][5] = pixel < pixels ? pixel : 0;
            epilogue(p, at[i], kept[i], acc, pixel < pixels && channel + i < (int)p.columns);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_dgrad_tf32_rs(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t ring = smem_addr(memory), full = ring + STAGES * (STAGE_A_BYTES + STAGE_B_BYTES), empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, 4 * CONSUMER_WARPGROUPS);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tiles = (int)p.tiles;
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        pdl_wait();
        if (warp == 0 && elect_one()) {
            const auto acquire = [&](smem_addr_t& a, smem_addr_t& b, smem_addr_t& barrier) {
                mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                barrier = full + 8 * pipe.stage;
                mbarrier_expect_tx(barrier, STAGE_A_BYTES + STAGE_B_BYTES);
                a = ring + pipe.stage * (STAGE_A_BYTES + STAGE_B_BYTES);
                b = a + STAGE_A_BYTES;
                pipe.advance();
            };
            #pragma unroll 1
            for (int number = blockIdx.x; number < tiles; number += gridDim.x) fill_across(p, decode_work_tile(p, number), acquire);
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int consumer = warpgroup - 1, lane = (int)threadIdx.x % 32, q = lane % 4;
        const int down = consumer % DOWN, aside = consumer / DOWN;
        const int in_rows = channel_of_lane(warp, lane / 4), part = in_rows % FILTER_PANEL / 4, rest = in_rows % 4 * 4;
        const int panel = (down * 2 + in_rows / FILTER_PANEL) * FILTER_BYTES;
        const int upper = panel + q * SWIZZLE_BYTES + ((part ^ q) << 4) + rest, lower = panel + (q + 4) * SWIZZLE_BYTES + ((part ^ (q + 4)) << 4) + rest;
        Accum sum[ACCUMS];
        RowCoords a[GROUPS];
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) sum[i] = 0;
        #pragma unroll 1
        for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
            const WorkTile w = decode_work_tile(p, number);
            int previous = -1;
            #pragma unroll 1
            for (int step = w.first; step < w.last; ++step) {
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const int stage = pipe.stage * (STAGE_A_BYTES + STAGE_B_BYTES);
                const smem_desc_t b = make_desc<false>(ring + stage + STAGE_A_BYTES + aside * (COLUMNS * SWIZZLE_BYTES));
                #pragma unroll
                for (int group = 0; group < GROUPS; ++group) {
                    wgmma_wait<GROUPS - 1>();
                    fence_accumulators(a[group]);
                    if (group == GROUPS - 1) {  // the step before this one is done: its stage may be filled again
                        __syncwarp();
                        arrive_if(lane == 0 && previous >= 0, empty + 8 * previous);
                    }
                    read_rows(a[group], memory + stage + group * (EIGHTS * 8 * SWIZZLE_BYTES), upper, lower);
                    fence_accumulators(a[group]);
                    fence_accumulators(sum);
                    wgmma_fence();
                    #pragma unroll
                    for (int i = 0; i < EIGHTS; ++i) {
                        const int k = group * EIGHTS + i;
                        wgmma_rs(sum, a[group][i], b + k * DESC_STEP_K<false>, k == 0 ? step - w.first : 1);
                    }
                    wgmma_commit();
                }
                previous = pipe.stage;
                pipe.advance();
            }
            wgmma_wait<0>();
            if (number + (int)gridDim.x >= tiles) pdl_trigger();
            fence_accumulators(sum);
            __syncwarp();
            if (previous >= 0 && lane == 0) mbarrier_arrive(empty + 8 * previous);
            leave_pixels(p, w, w.tile_n * TILE_M + down * 64 + in_rows, w.tile_m * TILE_N + aside * COLUMNS, sum);
        }
    }
}
