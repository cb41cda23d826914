// Filter gradients of unit stride on the tensor cores of compute capability 9.0, whose taps share a copied patch of the image.
//
//   rows: channels of the gradient   columns: taps, channels of the image   k: pixels, of a patch of TALL x WIDE
//
// The pixels that a patch's taps reach lie in shared memory as rows of CHANNELS, PITCH pixels from one line to the next,
// zeros around the image. k runs across these rows, eight pixels of a line at a time. A warpgroup has one line of taps: the
// columns of its next tap are those of this one, STEP_W rows further on, which is what a descriptor says of the distance
// of panels. Patches do not reach beyond the gradient: its zeros would meet what is real there. Of three axes, a patch lies in
// a slice of the gradient, and a block has one tap along the first of them: it reads one slice of the image for each.

static_assert(SEATS >= 128 * (TAPS_H + 1), "a warpgroup for each line of taps, and one that copies");
constexpr int LINE = CHANNELS * (int)sizeof(Element);  // bytes of a pixel of the image
constexpr int PITCH = WIDE + (TAPS_W - 1) * STEP_W, LINES = TALL + (TAPS_H - 1) * STEP_H;
constexpr int LANDING = LINES * PITCH * LINE, IMAGE_BYTES = (LANDING + 1023) / 1024 * 1024, GRADIENT_BYTES = TALL * WIDE * SWIZZLE_BYTES;
constexpr int STAGE_BYTES = IMAGE_BYTES + GRADIENT_BYTES;
constexpr int OF_TAP = CHANNELS / 2;  // sums of a thread
static_assert(WGRAD && !(SWAP_AB || FILTER_MN_MAJOR || PERMUTE_N), "a filter gradient reads no filter");
static_assert(TILE_M == SLAB_ROWS && TILE_N == SLAB_ROWS && CONSUMER_WARPGROUPS == 1, "sums leave by 64 channels of one tap");
static_assert(LINE == 128 || LINE == 64, "swizzles that there are");
static_assert((WIDE == 8 && TALL % 2 == 0) || WIDE % 16 == 0, "whole steps of 16 pixels");

// RowCoords of the image from one step of 16 pixels to another, and from eight pixels to the other eight.
constexpr int rows_before(int k) { return WIDE == 8 ? 2 * k * PITCH : k / (WIDE / 16) * PITCH + k % (WIDE / 16) * 16; }
constexpr int BETWEEN_EIGHTS = WIDE == 8 ? PITCH : 8;

__device__ __forceinline__ smem_desc_t taps_at(smem_addr_t address) {
    const smem_desc_t between_taps = STEP_W * LINE >> 4, between_eights = BETWEEN_EIGHTS * LINE >> 4, swizzled = LINE == 128 ? 1 : 2;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_taps << 16 | between_eights << 32 | swizzled << 62;
}

// A block's piece of work: patches for 64 channels of the gradient, CHANNELS of the image and a tap between slices. The first shares are whole,
// those of the rest are split into parts.
struct Share { int row, channels, slice, first, last, part, rest; };

__device__ __forceinline__ Share share_of(const Params& p, int number) {
    Share s;
    s.first = s.part = 0;
    s.last = (int)p.patches;
    s.rest = -1;
    if (SPLIT_K && number >= (int)p.whole) {
        s.part = number - (int)p.whole;
        s.rest = divmod_inplace(s.part, (int)p.shares - (int)p.whole);
        split_range((int)p.patches, s.part, (int)p.splits, s.first, s.last);
        number = (int)p.whole + s.rest;
    }
    s.slice = SPATIAL == 3 ? divmod_inplace(number, (int)p.taps[0]) : 0;
    s.channels = divmod_inplace(number, (int)p.shares_across);
    s.row = number;
    return s;
}

__device__ __forceinline__ int tap_at(const Params& p, int slice, int line, int s) {
    return (int)p.tap_first + slice * (int)p.tap_pace[0] + line * (int)p.tap_pace[1] + s * (int)p.tap_pace[2];
}

__device__ __forceinline__ WorkTile tile_of(const Params& p, const Share& share, int line, int s) {
    WorkTile w{};
    w.tile_m = share.row;
    w.tile_n = tap_at(p, share.slice, line, s) * (int)p.channel_blocks + share.channels * CHANNELS / SLAB_ROWS;
    return w;
}
__device__ __forceinline__ int block_of(const Share& share, int i) { return CHANNELS == SLAB_ROWS ? i : share.channels % 2; }

// Pieces of partial sums: [share][tap][32 columns].
constexpr int PIECES = TAPS_H * TAPS_W * (CHANNELS / 32);
__device__ __forceinline__ int fragments_per_split(const Params& p) { return ((int)p.shares - (int)p.whole) * PIECES; }
__device__ __forceinline__ PartialTile partial_tile_at(const Params& p, int piece) {
    const int i = divmod_inplace(piece, CHANNELS / 32), s = divmod_inplace(piece, TAPS_W), line = divmod_inplace(piece, TAPS_H);
    const Share share = share_of(p, (int)p.whole + piece);
    return PartialTile{tile_of(p, share, line, s), 0, block_of(share, i)};
}

// Warpgroups, each with a line of taps, begin so many patches one after the other: the ring is deep enough for it.
constexpr int BETWEEN_LINES = 2;
constexpr bool ARE_APART = STAGES > BETWEEN_LINES * (TAPS_H - 1);
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void begin_line(int line) { asm volatile("bar.arrive %0, 256;" ::"r"(1 + line) : "memory"); }
__device__ __forceinline__ void await_line(int line) { asm volatile("bar.sync %0, 256;" ::"r"(1 + line) : "memory"); }
#else
__device__ __forceinline__ void begin_line(int) {}
__device__ __forceinline__ void await_line(int) {}
#endif

extern "C" __global__ void __launch_bounds__(SEATS, 1) hopper_halo_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t ring = smem_addr(memory), full = ring + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, TAPS_H);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    if (p.trigger_early) pdl_trigger();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int pieces = (int)p.whole + ((int)p.shares - (int)p.whole) * (int)p.splits;
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            bool is_first = true;
            #pragma unroll 1
            for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
                const Share share = share_of(p, number);
                #pragma unroll 1
                for (int patch = share.first; patch < share.last; ++patch) {
                    int rest = patch;
                    const int x = divmod_inplace(rest, (int)p.patches_across) * WIDE, y = divmod_inplace(rest, (int)p.patches_down) * TALL;
                    if (is_first) pdl_wait();  // when all else is known
                    is_first = false;
                    mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                    const smem_addr_t image = ring + pipe.stage * STAGE_BYTES, barrier = full + 8 * pipe.stage;
                    mbarrier_expect_tx(barrier, LANDING + GRADIENT_BYTES);
                    const smem_addr_t gradient = image + IMAGE_BYTES;
                    const int w = x + (int)p.lowest[2], h = y + (int)p.lowest[1], channels = share.channels * CHANNELS;
                    if constexpr (SPATIAL == 3) {
                        const int z = divmod_inplace(rest, (int)p.pixels[0]);
                        const int d = z * (int)p.traversal_stride[0] + (int)p.lowest[0] + share.slice * abs((int)p.dilation[0]);
                        tma_load_tile(gradient, p.dense_map[0], barrier, share.row * TILE_M, x, y, z, rest);
                        tma_load_tile(image, p.im2col_map[0], barrier, channels, w, h, d, rest);
                    } else {
                        tma_load_tile(gradient, p.dense_map[0], barrier, share.row * TILE_M, x, y, rest);
                        tma_load_tile(image, p.im2col_map[0], barrier, channels, w, h, rest);
                    }
                    pipe.advance();
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int line = warpgroup - 1;
        float sum[TAPS_W * OF_TAP];
        #pragma unroll
        for (int i = 0; i < TAPS_W * OF_TAP; ++i) sum[i] = 0;
        Tap taps[TAPS_W];  // of the first slice
        #pragma unroll
        for (int s = 0; s < TAPS_W; ++s) taps[s] = decode_tap(p, 0, tap_at(p, 0, line, s));
        #pragma unroll 1
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            const Share share = share_of(p, number);
            // Of a first share that is whole, whose results leave while other lines multiply.
            const bool is_apart = ARE_APART && number == (int)blockIdx.x && share.rest < 0 && share.last - share.first > BETWEEN_LINES * TAPS_H;
            if (is_apart && line > 0) await_line(line);
            int previous = -1;
            #pragma unroll 2
            for (int patch = share.first; patch < share.last; ++patch) {
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const smem_addr_t image = ring + pipe.stage * STAGE_BYTES;
                const smem_desc_t a = make_desc<true>(image + IMAGE_BYTES), b = taps_at(image + line * (STEP_H * PITCH * LINE));
                fence_accumulators(sum);
                wgmma_fence();
                #pragma unroll
                for (int k = 0; k < TALL * WIDE / 16; ++k)
                    wgmma_ss(sum, a + k * DESC_STEP_K<true>, b + (rows_before(k) * LINE >> 4), k == 0 ? patch - share.first : 1);
                wgmma_commit();
                wgmma_wait<1>();
                // The patch before this one is done: its stage may be filled again.
                if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * previous);
                previous = pipe.stage;
                pipe.advance();
                if (is_apart && line == 0)
                    #pragma unroll
                    for (int other = 1; other < TAPS_H; ++other)
                        if (patch - share.first == BETWEEN_LINES * other - 1) begin_line(other);
            }
            EpilogueCoordsOf<true> at;
            (RowCoords&)at = row_coords(p, tile_of(p, share, line, 0), 0, 0);
            at.columns[0].first = share.channels * CHANNELS / SLAB_ROWS * SLAB_ROWS;
            at.columns[0].limit = (int)p.channels;
            wgmma_wait<0>();
            if (number + (int)gridDim.x >= pieces) pdl_trigger();
            fence_accumulators(sum);
            if (threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * previous);
            #pragma unroll
            for (int s = 0; s < TAPS_W; ++s) {
                at.columns[0].tap = taps[s];
                if (SPATIAL == 3) at.columns[0].tap.at[0] += (int)p.tap_pace[0] < 0 ? -share.slice : share.slice;
                #pragma unroll
                for (int i = 0; i < CHANNELS / 32; ++i) {
                    float some[16];
                    #pragma unroll
                    for (int e = 0; e < 16; ++e) some[e] = sum[s * OF_TAP + i * 16 + e];
                    if (SPLIT_K && share.rest >= 0)
                        store_partials(p, share.part, ((share.rest * TAPS_H + line) * TAPS_W + s) * (CHANNELS / 32) + i, some);
                    else epilogue_store<1>(p, WorkTile{}, at, block_of(share, i), some);
                }
            }
        }
    }
}
