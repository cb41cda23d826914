// Forward convolution of an image of few channels on the tensor cores of compute capability 9.0: windows as in
// direct_stem.cu. A warpgroup multiplies 64 pixels by BN channels at once, pixels out of registers, filters out of shared
// memory. A warp's 16 pixels are neighbours; the four warps take whatever pixels follow each other in the tile.
//
// Filters lie as [16 bytes of the sum][channel], swizzled; channels are dealt to the columns of the products such that a lane
// ends with 8 neighbouring channels of every 32 of its pixel: four lanes store whole sectors.

constexpr int STEPS = (SLICES + 1) / 2;                // of 16 numbers of the sum
constexpr int PANELS = (SLICES + 7) / 8;               // of 64 numbers
constexpr int FILTER_BYTES = PANELS * BN * ROW;        // for one place of a window's beginning
constexpr int MOST = BN > 64 ? 6 : 12;
constexpr int AT_ONCE = STEPS < MOST ? STEPS : MOST;   // steps whose windows are in registers
static_assert(sizeof(Element) == 2 && THREADS % 128 == 0 && BN % 32 == 0, "warpgroups, and whole accesses");

template <int COUNT> __device__ __forceinline__ void pin(unsigned int (&x)[COUNT]) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(x[i])::"memory");
#endif
}

// What threads wrote to shared memory is seen by the tensor cores.
__device__ __forceinline__ void publish_filters() {
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) hopper_stem(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Element* const rows = (Element*)(memory + APART * FILTER_BYTES);
    Filter* const slab = (Filter*)(rows + 2 * STAGE);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int block_channel = (int)blockIdx.y * BN;

    copy_filters<BN>(p, slab, block_channel);
    clear_margins(p, rows);
    commit_copies();
    unsigned int tile = blockIdx.x;
    if (tile < (unsigned int)p.tiles) fetch(p, rows, tile);
    commit_copies();
    await_copies<1>();
    __syncthreads();
    for (int i = threadIdx.x; i < APART * PANELS * 8 * BN; i += THREADS) {  // a slice of one channel each
        const int column = i % BN, slice = i / BN % (PANELS * 8), odd = i / BN / (PANELS * 8);
        const int channel = column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
        const int r = slice / (DEPTH / 8), first = slice % (DEPTH / 8) * 8 - (odd ? 1 - LEAD : LEAD);
        Pack<Element, 8> pack;
        #pragma unroll
        for (int e = 0; e < 8; ++e) pack.at[e].bits = weight_at(p, slab, channel, r, first + e);
        store_pack<8>((Element*)(memory + odd * FILTER_BYTES + slice / 8 * (BN * ROW) + column * ROW +
                                 ((slice % 8 ^ column % 8) << 4)), pack);
    }
    publish_filters();

    Kept kept[BN / 4 / WIDTH];  // what the epilogue reads for a lane's channels
    #pragma unroll
    for (int v = 0; v < BN / 4; v += WIDTH) {
        const int channel = block_channel + v / 8 * 32 + 8 * j + v % 8;
        const int at[4] = {0, channel < (int)p.channels_out ? channel : 0, 0, 0};
        keep(p, at, kept[v / WIDTH]);
    }
    const int groups = TP * (int)p.column_tiles, units = (groups + 3) / 4 * APART;
    int slot = 0;
    for (; tile < (unsigned int)p.tiles; tile += gridDim.x) {
        if (tile + gridDim.x < (unsigned int)p.tiles) fetch(p, rows + (slot ^ 1) * STAGE, tile + gridDim.x);
        commit_copies();
        await_copies<1>();
        __syncthreads();
        const int n = (int)(tile / (unsigned int)p.row_tiles);
        const int out0 = (int)(tile % (unsigned int)p.row_tiles) * TP;
        #pragma unroll 1
        for (int unit = warpgroup; unit < units; unit += THREADS / 128) {
            const int odd = unit % APART, lead = odd ? 1 - LEAD : LEAD, wanted = unit / APART * 4 + warp;
            const int group = wanted < groups ? wanted : groups - 1;
            const int row = group / (int)p.column_tiles, column = group - row * (int)p.column_tiles;
            const int q = (column * 16 + g) * APART + odd;
            const Element* const from = rows + slot * STAGE + row * STRIDE_H * PITCH + (int)p.window + (LEAD - lead) +
                                        q * (STRIDE_W * C) + 2 * j;
            // What a lane keeps of the first and of the last pair of a window.
            const unsigned int keep_first = lead && j == 0 ? 0xffff0000u : 0xffffffffu;
            const int behind = DEPTH - 8 + 2 * j - lead;
            const unsigned int keep_last = (behind < WINDOW ? 0xffffu : 0u) | (behind + 1 < WINDOW ? 0xffff0000u : 0u);
            const matrix_t filters = matrix_at<false>(shared_address(memory) + odd * FILTER_BYTES);
            float sum[BN / 2];
            #pragma unroll
            for (int i = 0; i < BN / 2; ++i) sum[i] = 0;
            #pragma unroll
            for (int first = 0; first < STEPS; first += AT_ONCE) {
                unsigned int a[AT_ONCE][4];
                #pragma unroll
                for (int step = 0; step < AT_ONCE; ++step)
                    #pragma unroll
                    for (int d = 0; d < 2; ++d) {
                        const int slice = 2 * (first + step) + d, r = slice / (DEPTH / 8), at = slice % (DEPTH / 8);
                        unsigned int upper = 0, lower = 0;
                        if (slice < SLICES) {
                            const Element* const here = from + r * PITCH + at * 8;
                            upper = pair_at(here), lower = pair_at(here + 8 * NEXT);
                            if (HAS_LEAD && at == 0) upper &= keep_first, lower &= keep_first;
                            if ((DEPTH != WINDOW + LEAD || APART == 2) && at == DEPTH / 8 - 1)
                                upper &= keep_last, lower &= keep_last;
                        }
                        a[step][2 * d] = upper;
                        a[step][2 * d + 1] = lower;
                    }
                pin(sum);
                #pragma unroll
                for (int step = 0; step < AT_ONCE; ++step) pin(a[step]);
                products_begin();
                #pragma unroll
                for (int step = 0; step < AT_ONCE; ++step) {
                    const int k = first + step;
                    if (k < STEPS)
                        multiply_rows(sum, a[step], filters + (k / 4 * (BN * ROW) >> 4) + k % 4 * NEXT_K<false>, k > 0);
                }
                products_end();
                await_products<0>();
                pin(sum);
            }
            if (wanted >= groups || out0 + row >= (int)p.out_h) continue;
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (q + 8 * APART * half >= (int)p.out_w) continue;
                #pragma unroll
                for (int v = 0; v < BN / 4; v += WIDTH) {
                    const int at[4] = {n, block_channel + v / 8 * 32 + 8 * j + v % 8, out0 + row, q + 8 * APART * half};
                    if (at[1] >= (int)p.channels_out) continue;
                    float acc[WIDTH];
                    #pragma unroll
                    for (int e = 0; e < WIDTH; ++e) acc[e] = sum[(v + e) / 2 * 4 + 2 * half + (v + e) % 2];
                    epilogue(p, at, kept[v / WIDTH], acc);
                }
            }
        }
        __syncthreads();
        slot ^= 1;
    }
    await_copies<0>();
}
