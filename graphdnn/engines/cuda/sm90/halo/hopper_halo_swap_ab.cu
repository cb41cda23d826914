// Convolutions of unit stride on the tensor cores of compute capability 9.0, each piece of the image copied once for all taps,
// whose pixels are the columns of the products.
//
// A block has a patch of TALL lines of 8 pixels of the result, and each of its consumers 64 channels: filters are the rows of
// its products, permuted so that the two rows of a lane are neighbouring channels. An instruction multiplies all of the patch, so
// that less is read from shared memory for each sum. Consumers share patches, but each has a ring of filters of its own: one
// begins a block of channels behind the other, and its results leave beside the other's products.

constexpr int FILTER_BYTES = B_BYTES / CONSUMER_WARPGROUPS;  // a consumer's, of one tap
static_assert(SWAP_AB && PERMUTE_N && !FILTER_MN_MAJOR && !LINEAR && WIDE == 8 && TALL * WIDE == TILE_N, "lines one after the other");
static_assert(MMA_TILES_M == 1 && PATCHES == 1 && STAGE_K == 1 && !RESIDENT && CONSUMER_WARPGROUPS <= 3, "64 channels, a warp for each one's filters");

template <int SLICES> __device__ __forceinline__ void multiply_slices(Accum (&sum)[ACCUMS], smem_desc_t a, smem_desc_t b, int add) {
    #pragma unroll
    for (int k = 0; k < SLICES; ++k) wgmma_ss(sum, a + k * DESC_STEP_K<false>, b + k * DESC_STEP_K<false>, k == 0 ? add : 1);
}

// Two neighbouring channels, of which the epilogue takes VEC_WIDTH at a time.
struct Pair { int at[EPILOGUE_CALLS_PER_PAIR][6]; bool is_there[EPILOGUE_CALLS_PER_PAIR]; };

__device__ __forceinline__ Pair pair_of(const Params& p, int channel, EpilogueOperands& held) {
    Pair pair;
    #pragma unroll
    for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
        #pragma unroll
        for (int d = 0; d < 6; ++d) pair.at[i][d] = 0;
        pair.is_there[i] = channel + i < (int)p.columns;
        pair.at[i][2] = pair.is_there[i] ? channel + i : 0;
        load_column_operands(p, pair.at[i], held.kept[i]);
    }
    return pair;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int blocks = blocks_of(p);
    const smem_addr_t patches = smem_addr(memory), filters = patches + STAGES * PATCH_BYTES;
    const smem_addr_t full = filters + FILTERS * B_BYTES, empty = full + 8 * STAGES;
    const smem_addr_t full_filter = empty + 8 * STAGES, empty_filter = full_filter + 8 * CONSUMER_WARPGROUPS * FILTERS;
    const smem_addr_t begun = empty_filter + 8 * CONSUMER_WARPGROUPS * FILTERS;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, CONSUMER_WARPGROUPS);
        init_pipeline<CONSUMER_WARPGROUPS * FILTERS>(full_filter, empty_filter, 1);
        mbarrier_init(begun, 1);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    pdl_wait();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int columns = (int)p.tiles_n, pieces = (int)p.patches * columns;
    PipelineState<STAGES> pipe;
    PipelineState<FILTERS> next;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp > CONSUMER_WARPGROUPS || !elect_one()) return;
        #pragma unroll 1
        for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
            PatchBlock from;
            if (warp == CONSUMER_WARPGROUPS) {
                const Corner corner = corner_of(p, piece / columns);
                #pragma unroll 1
                for (int block = 0; block < blocks; ++block, from.advance(p)) {
                    mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                    mbarrier_expect_tx(full + 8 * pipe.stage, LANDING);
                    copy_patch(p, patches + pipe.stage * PATCH_BYTES, full + 8 * pipe.stage, from, corner);
                    pipe.advance();
                }
            } else {
                #pragma unroll 1
                for (int block = 0; block < blocks; ++block, from.advance(p))
                    #pragma unroll 1
                    for (int tap = 0; tap < TAPS; ++tap) {
                        const int stage = warp * FILTERS + next.stage;
                        mbarrier_wait_parity(empty_filter + 8 * stage, next.phase ^ 1);
                        mbarrier_expect_tx(full_filter + 8 * stage, FILTER_BYTES);
                        copy_filter(
                            p, filters + stage * FILTER_BYTES, full_filter + 8 * stage, from, tap,
                            piece % columns * TILE_M + 64 * warp
                        );
                        next.advance();
                    }
            }
        }
        return;
    }
    alloc_registers<CONSUMER_REGS>();
    const int consumer = warpgroup - 1, ring = consumer * FILTERS, lane = (int)threadIdx.x % 32;
    const bool is_first = threadIdx.x % 128 == 0;
    const int in_tile = 64 * consumer + 16 * warp + lane / 4 * 2;  // a lane's first channel
    Accum sum[ACCUMS];
    #pragma unroll
    for (int i = 0; i < ACCUMS; ++i) sum[i] = 0;
    EpilogueOperands held;
    Pair pair{};
    if constexpr (STAYS) pair = pair_of(p, (int)blockIdx.x % columns * TILE_M + in_tile, held);
    if (consumer > 0) mbarrier_wait_parity(begun, 0);
    #pragma unroll 1
    for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        if constexpr (!STAYS) pair = pair_of(p, piece % columns * TILE_M + in_tile, held);
        int previous = -1, previous_filter = -1;
        PatchBlock from;
        #pragma unroll 1
        for (int block = 0; block < blocks; ++block, from.advance(p)) {
            const bool is_end = is_last(p, from);
            mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
            const smem_desc_t b = pixels_at(patches + pipe.stage * PATCH_BYTES);
            #pragma unroll
            for (int r = 0; r < TAPS_H; ++r)
                #pragma unroll
                for (int s = 0; s < TAPS_W; ++s) {
                    mbarrier_wait_parity(full_filter + 8 * (ring + next.stage), next.phase);
                    const smem_desc_t a = filters_at(filters + (ring + next.stage) * FILTER_BYTES);
                    const smem_desc_t shifted = b + (r * STEP_H * PITCH + s * STEP_W) * (PATCH_ROW >> 4);
                    const int add = r == 0 && s == 0 ? block : 1;  // a patch's first products begin its sums
                    fence_accumulators(sum);
                    wgmma_fence();
                    if (LAST_SLICES == 4 || !is_end) multiply_slices<4>(sum, a, shifted, add);
                    else multiply_slices<LAST_SLICES>(sum, a, shifted, add);
                    wgmma_commit();
                    wgmma_wait<1>();
                    // What the products before these have read may be filled again.
                    if (previous_filter >= 0 && is_first) mbarrier_arrive(empty_filter + 8 * (ring + previous_filter));
                    if (r == 0 && s == 0 && previous >= 0 && is_first) mbarrier_arrive(empty + 8 * previous);
                    previous_filter = next.stage;
                    next.advance();
                }
            // The first one's block of channels is through: the others begin. They wait for nobody else.
            if (CONSUMER_WARPGROUPS > 1 && block == 0 && piece == (int)blockIdx.x && threadIdx.x == 128) mbarrier_arrive(begun);
            previous = pipe.stage;
            pipe.advance();
        }
        const Corner corner = corner_of(p, piece / columns);
        wgmma_wait<0>();
        if (piece + (int)gridDim.x >= pieces) pdl_trigger();
        fence_accumulators(sum);
        if (is_first) {
            mbarrier_arrive(empty + 8 * previous);
            mbarrier_arrive(empty_filter + 8 * (ring + previous_filter));
        }
        // Lines of the image that leave, by a lane's pixels in a line.
        const int w = corner.w + lane % 4 * 2, height = (int)p.pixels[1], width = (int)p.pixels[2];
        int lines[2][EPILOGUE_CALLS_PER_PAIR];
        #pragma unroll
        for (int n = 0; n < 2; ++n)
            #pragma unroll
            for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) lines[n][i] = w + n < width && pair.is_there[i] ? height : 0;
        #pragma unroll
        for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) pair.at[i][0] = corner.n, pair.at[i][3] = corner.d;
        #pragma unroll
        for (int n = 0; n < ACCUMS / 2; ++n) {  // pixels; those outside read what the last one reads, and store nothing
            const int h = corner.h + n / 2;
            const Accum both[2] = {sum[n / 2 * 4 + n % 2], sum[n / 2 * 4 + n % 2 + 2]};
            #pragma unroll
            for (int i = 0; i < EPILOGUE_CALLS_PER_PAIR; ++i) {
                Accum acc[VEC_WIDTH];
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = both[i * VEC_WIDTH + e];
                pair.at[i][4] = min(h, height - 1);
                pair.at[i][5] = min(w + n % 2, width - 1);
                epilogue(p, pair.at[i], held.kept[i], acc, h < lines[n % 2][i]);
            }
        }
    }
}
