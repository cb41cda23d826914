// Data gradient in TF32 by wgmma for sm_90a, with filters that are MN-major in memory. Unit stride: one GEMM.
//
//   dx[pixel, c] = epilogue(sum over taps and k of filter[k, tap, c] * dy[pixel at tap, k])
//
// wgmma reads TF32 operands in shared memory only K-major, and the filter of a dgrad is MN-major. Consumers therefore load the filter
// from shared memory into registers, as A fragments, and issue wgmma RS.
//
// Tile:       TILE_M channels c (rows) by TILE_N pixels (columns). A K tile is 32 channels k of one tap. A consumer warpgroup has 64 rows
//             and COLUMNS columns; CONSUMERS_M x CONSUMERS_N consumers share a tile.
// Pipeline:   STAGES stages. TMA bytes complete `full`, one arrival of each consumer warp completes `empty`. The fragments of half a
//             stage are loaded while wgmma multiplies the other half.
// Warp roles: warpgroup 0 is the producer; one elected thread issues TMA. The other warpgroups multiply and store.
// Layout:     a stage has the filter in slabs of 32 channels c, a row of 128 bytes for each k, then the pixels of dy, K-major; 128-byte
//             swizzle. Images are NHWC.
// Fragments:  lane 4g + q has rows g and g + 8 of a warp's 16, at K coordinates q and q + 4 of every eight. The kernel chooses which
//             channel a row is: the two rows of a lane are contiguous channels, so one 8-byte load reads both. Lanes are placed such
//             that the four K rows of a load use all banks, since the swizzle exchanges 16-byte vectors by k modulo 8.
// Epilogue:   each thread stores two contiguous channels of each of its pixels.
//
// Required constants (from the generator), besides those of conv_work_tile.cuh (SWAP_AB, FILTER_MN_MAJOR and VEC_N = 2 are fixed):
//   CONSUMERS_M, CONSUMERS_N              consumer warpgroups along the rows and along the columns of a tile
//   CONSUMER_WARPGROUPS                   their product
//   STAGES                                stages of the pipeline
//   CONSUMER_REGS, PRODUCER_REGS          registers of a consumer thread and of a producer thread
//   VEC_WIDTH                             channels that one call of the epilogue takes, 1 or 2

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1), COLUMNS = TILE_N / CONSUMERS_N, ACCUMS = COLUMNS / 2;
constexpr int FILTER_SLAB_CHANNELS = 32, FILTER_SLAB_BYTES = FILTER_SLAB_CHANNELS * TILE_K * 4, FILTER_SLABS = TILE_M / FILTER_SLAB_CHANNELS;
constexpr int STAGE_A_BYTES = FILTER_SLABS * FILTER_SLAB_BYTES, STAGE_B_BYTES = TILE_N * SWIZZLE_BYTES, STAGE_BYTES = STAGE_A_BYTES + STAGE_B_BYTES;
constexpr int EPILOGUE_CALLS = VEC_WIDTH == 1 ? 2 : 1;  // for two channels of a pixel
static_assert(TILE_M == 64 * CONSUMERS_M && COLUMNS % 8 == 0 && CONSUMER_WARPGROUPS == CONSUMERS_M * CONSUMERS_N && TILE_K == 32, "consumers share a tile evenly");
static_assert(SWAP_AB && FILTER_MN_MAJOR && !WGRAD && !PERMUTE_N && VEC_N == 2, "rows are channels, and the GEMM has one residue");

// Issues the TMA loads of a work tile. `acquire(a, b, barrier)` waits for a free stage.
template <class Acquire> __device__ __forceinline__ void load_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    const int channel_blocks = (int)p.channel_blocks, first_channel = w.tile_n * TILE_M;
    int start[3], offset[3];
    const Pixel pixel = decode_pixel(p, 0, w.tile_m * TILE_N);
    im2col_start(p, 0, pixel, start);
    Tap tap = decode_tap(p, 0, 0);
    int channel_block = 0;
    #pragma unroll 1
    for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        tap_offset(p, 0, tap, offset);
        int filter_tap = (int)p.first_filter_tap[0];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) filter_tap += tap.coord[d] * (int)p.filter_tap_stride[d];
        tma_load_im2col<SPATIAL>(b, p.im2col_map[0], barrier, channel_block * TILE_K, pixel.n, start, offset);
        #pragma unroll
        for (int j = 0; j < FILTER_SLABS; ++j)
            tma_load_tile(a + j * FILTER_SLAB_BYTES, p.dense_map[0], barrier, first_channel + j * FILTER_SLAB_CHANNELS, filter_tap, channel_block * TILE_K);
        if (++channel_block == channel_blocks) channel_block = 0, advance_tap(p, 0, tap);
    }
}

// Arrives if `condition`, without a branch: ptxas serializes wgmma groups that have a branch between them.
__device__ __forceinline__ void arrive_if(bool condition, smem_addr_t barrier) {
#ifdef __CUDA_ARCH__
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}"
                 ::"r"(barrier), "r"((int)condition) : "memory");
#else
    if (condition) mbarrier_arrive(barrier);
#endif
}

// The channel, in a consumer's 64 rows, of row g of a lane. Row g + 8 is the next channel.
__device__ __forceinline__ int channel_of_lane(int warp, int g) {
    const int vec = 2 * (warp % 2) + g / 4 + (g / 2 % 2) * 4;  // 16-byte vector of the slab's row
    return warp / 2 * FILTER_SLAB_CHANNELS + vec * 4 + g % 2 * 2;
}

// wgmma groups of a stage, and MMA K steps of each. Measured: one group is slower with many columns, and four are with few.
constexpr int WGMMA_GROUPS = 2, GROUP_K_STEPS = 4 / WGMMA_GROUPS;
typedef unsigned int AFragment[GROUP_K_STEPS][4];

__device__ __forceinline__ void fence_accumulators(AFragment& a) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < GROUP_K_STEPS; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
#endif
}

// Loads the A fragments of a wgmma group. `k_low`, `k_high`: offsets of this lane's channels at its two K coordinates of every eight.
__device__ __forceinline__ void load_a_fragment(AFragment& a, const unsigned char* filter, int k_low, int k_high) {
    #pragma unroll
    for (int i = 0; i < GROUP_K_STEPS; ++i) {
        const unsigned long long low = *reinterpret_cast<const unsigned long long*>(filter + i * 8 * SWIZZLE_BYTES + k_low);
        const unsigned long long high = *reinterpret_cast<const unsigned long long*>(filter + i * 8 * SWIZZLE_BYTES + k_high);
        a[i][0] = (unsigned int)low, a[i][1] = (unsigned int)(low >> 32);
        a[i][2] = (unsigned int)high, a[i][3] = (unsigned int)(high >> 32);
    }
}

// Stores two contiguous channels of each of a lane's pixels. The pixels of all images are one axis of the result.
__device__ __forceinline__ void epilogue_store_pixels(const Params& p, int channel, int first_pixel, const Accum (&accum)[ACCUMS]) {
    const int lane = (int)threadIdx.x % 32, pixels = (int)p.rows[0];
    ColumnOperands operands[EPILOGUE_CALLS];
    int coord[EPILOGUE_CALLS][6];
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) coord[i][d] = 0;
        coord[i][2] = channel + i < (int)p.columns ? channel + i : 0;
        load_column_operands(p, coord[i], operands[i]);
    }
    #pragma unroll
    for (int n = 0; n < ACCUMS / 2; ++n) {  // columns of a lane
        const Accum pair[2] = {accum[n / 2 * 4 + n % 2], accum[n / 2 * 4 + n % 2 + 2]};
        const int pixel = first_pixel + lane % 4 * 2 + n / 2 * 8 + n % 2;
        #pragma unroll
        for (int i = 0; i < EPILOGUE_CALLS; ++i) {
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = pair[i * VEC_WIDTH + e];
            coord[i][5] = pixel < pixels ? pixel : 0;
            epilogue(p, coord[i], operands[i], acc, pixel < pixels && channel + i < (int)p.columns);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_dgrad_tf32_rs(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t stages = smem_addr(memory), full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
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
        // producer
        dealloc_registers<PRODUCER_REGS>();
        pdl_wait();
        if (warp == 0 && elect_one()) {
            const auto acquire = [&](smem_addr_t& a, smem_addr_t& b, smem_addr_t& barrier) {
                mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                barrier = full + 8 * pipe.stage;
                mbarrier_expect_tx(barrier, STAGE_BYTES);
                a = stages + pipe.stage * STAGE_BYTES;
                b = a + STAGE_A_BYTES;
                pipe.advance();
            };
            #pragma unroll 1
            for (int item = blockIdx.x; item < tiles; item += gridDim.x) load_k_tiles(p, decode_work_tile(p, item), acquire);
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int consumer = warpgroup - 1, lane = (int)threadIdx.x % 32, q = lane % 4;
        const int consumer_m = consumer % CONSUMERS_M, consumer_n = consumer / CONSUMERS_M;
        const int channel = channel_of_lane(warp, lane / 4);  // in the consumer's 64 rows
        const int vec = channel % FILTER_SLAB_CHANNELS / 4, byte_in_vec = channel % 4 * 4;
        const int slab = (consumer_m * 2 + channel / FILTER_SLAB_CHANNELS) * FILTER_SLAB_BYTES;
        const int k_low = slab + q * SWIZZLE_BYTES + ((vec ^ q) << 4) + byte_in_vec, k_high = slab + (q + 4) * SWIZZLE_BYTES + ((vec ^ (q + 4)) << 4) + byte_in_vec;
        Accum accum[ACCUMS];
        AFragment a[WGMMA_GROUPS];
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) accum[i] = 0;
        #pragma unroll 1
        for (int item = blockIdx.x; item < tiles; item += gridDim.x) {
            // main loop
            const WorkTile w = decode_work_tile(p, item);
            int unreleased = -1;
            #pragma unroll 1
            for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const int stage = pipe.stage * STAGE_BYTES;
                const smem_desc_t b = make_desc<false>(stages + stage + STAGE_A_BYTES + consumer_n * (COLUMNS * SWIZZLE_BYTES));
                #pragma unroll
                for (int group = 0; group < WGMMA_GROUPS; ++group) {
                    wgmma_wait<WGMMA_GROUPS - 1>();
                    fence_accumulators(a[group]);
                    if (group == WGMMA_GROUPS - 1) {  // all wgmma of the previous K tile are complete, so the producer may fill its stage
                        __syncwarp();
                        arrive_if(lane == 0 && unreleased >= 0, empty + 8 * unreleased);
                    }
                    load_a_fragment(a[group], memory + stage + group * (GROUP_K_STEPS * 8 * SWIZZLE_BYTES), k_low, k_high);
                    fence_accumulators(a[group]);
                    fence_accumulators(accum);
                    wgmma_fence();
                    #pragma unroll
                    for (int i = 0; i < GROUP_K_STEPS; ++i) {
                        const int k = group * GROUP_K_STEPS + i;
                        wgmma_rs(accum, a[group][i], b + k * DESC_STEP_K<false>, k == 0 ? k_tile - w.k_begin : 1);
                    }
                    wgmma_commit();
                }
                unreleased = pipe.stage;
                pipe.advance();
            }

            // epilogue
            wgmma_wait<0>();
            if (item + (int)gridDim.x >= tiles) pdl_trigger();
            fence_accumulators(accum);
            __syncwarp();
            if (unreleased >= 0 && lane == 0) mbarrier_arrive(empty + 8 * unreleased);
            epilogue_store_pixels(p, w.tile_n * TILE_M + consumer_m * 64 + channel, w.tile_m * TILE_N + consumer_n * COLUMNS, accum);
        }
    }
}
