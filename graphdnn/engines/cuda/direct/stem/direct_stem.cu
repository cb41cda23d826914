// Forward convolution of an image of few channels (1 to 4): the first layer of a network, on tensor cores.
//
// With channels last, the window of one filter row is S * C neighbouring numbers, so rows of the image in shared
// memory are operands as they stand: pixel q's window begins at element q * STRIDE_W * C of its row. The sum runs over
// the windows of T * R filter rows, DEPTH numbers each, a multiple of 8; where the window begins at an odd element, one number before it is
// taken along (LEAD), so that pairs are aligned. Numbers that belong to no tap are cleared before the product: their
// weight is 0, but 0 times infinity is not.
//
// Where windows of neighbouring pixels begin at odd distances (APART 2), a warp takes every second pixel, the even ones or
// the odd ones, whose windows need a number before them in one of the two cases.
//
// Blocks stay: filters are registers, a warp's are CHANNELS output channels. A tile is TP output rows, whole; the rows
// of the next tile arrive while this one is computed. Output channels are dealt to the columns of the products such
// that a lane ends with 2 * NT neighbouring channels of its pixel.

constexpr int OWN = 2 * NT; // channels of a lane
constexpr int CHANNELS = 8 * NT; // of a warp
static_assert(THREADS / 32 / PARTS >= APART, "warps for even and for odd pixels");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_stem(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const rows = (Element*)memory;
    Filter* const slab = (Filter*)(rows + STAGES * STAGE);

    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int g = lane / 4, j = lane % 4;
    const int part = warp % PARTS, first = warp / PARTS / APART, odd = warp / PARTS % APART;  // which channels, which pixels
    const int lead = odd ? 1 - LEAD : LEAD;
    const int block_channel = (int)blockIdx.y * PARTS * CHANNELS;

    copy_filters<PARTS * CHANNELS, THREADS>(p, slab, block_channel);
    clear_margins(p, rows);
    commit_copies();
    unsigned int tile = blockIdx.x;
    if (tile < (unsigned int)p.tiles) fetch(p, rows, tile);
    commit_copies();
    await_copies<1>();
    __syncthreads();

    unsigned int weight[SLICES][NT];
    #pragma unroll
    for (int slice = 0; slice < SLICES; ++slice)
        #pragma unroll
        for (int i = 0; i < NT; ++i) {
            const int k = part * CHANNELS + OWN * (g / 2) + 2 * i + g % 2;
            const int r = slice / (DEPTH / 8), at = slice % (DEPTH / 8) * 8 + 2 * j - lead;
            weight[slice][i] = weight_at(p, slab, k, r, at) | (unsigned int)weight_at(p, slab, k, r, at + 1) << 16;
        }
    // What a lane keeps of the first and of the last pair of a window.
    const unsigned int keep_first = lead && j == 0 ? 0xffff0000u : 0xffffffffu;
    const int behind = DEPTH - 8 + 2 * j - lead;
    const unsigned int keep_last = (behind < WINDOW ? 0xffffu : 0u) | (behind + 1 < WINDOW ? 0xffff0000u : 0u);

    int slot = 0;
    for (; tile < (unsigned int)p.tiles; tile += gridDim.x) {
        if (tile + gridDim.x < (unsigned int)p.tiles) fetch(p, rows + (slot ^ 1) * STAGE, tile + gridDim.x);
        commit_copies();
        await_copies<1>();
        __syncthreads();
        const int slice_out = (int)(tile / (unsigned int)p.row_tiles);
        const int out0 = (int)(tile % (unsigned int)p.row_tiles) * TP;
        int row = 0, column = first;
        #pragma unroll 1
        for (;; column += THREADS / 32 / PARTS / APART) {
            while (column >= (int)p.column_tiles) column -= (int)p.column_tiles, ++row;
            if (row >= TP) break;
            const int q = (column * 16 + g) * APART + odd;
            const Element* const from = rows + slot * STAGE + row * STRIDE_H * PITCH + (int)p.window + (LEAD - lead) +
                                        q * (STRIDE_W * C) + 2 * j;
            float sum[NT][4];
            #pragma unroll
            for (int i = 0; i < NT; ++i)
                #pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][e] = 0.0f;
            #pragma unroll
            for (int slice = 0; slice < SLICES; slice += 2) {
                unsigned int a[4] = {0, 0, 0, 0};
                #pragma unroll
                for (int d = 0; d < 2; ++d) {
                    if (slice + d >= SLICES) continue;
                    const int r = (slice + d) / (DEPTH / 8), at = (slice + d) % (DEPTH / 8);
                    const Element* const here = from + row_at(r) + at * 8;
                    unsigned int upper = pair_at(here), lower = pair_at(here + 8 * NEXT);
                    if (HAS_LEAD && at == 0) upper &= keep_first, lower &= keep_first;
                    if ((DEPTH != WINDOW + LEAD || APART == 2) && at == DEPTH / 8 - 1) upper &= keep_last, lower &= keep_last;
                    a[2 * d] = upper;
                    a[2 * d + 1] = lower;
                }
                #pragma unroll
                for (int i = 0; i < NT; ++i)
                    if (slice + 1 < SLICES)
                        warp_product<Element, true>(
                            sum[i], a[0], a[1], a[2], a[3], weight[slice][i], weight[slice + 1 < SLICES ? slice + 1 : 0][i]
                        );
                    else
                        warp_product<Element, false>(sum[i], a[0], a[1], 0, 0, weight[slice][i], 0);
            }
            if (out0 + row >= (int)p.out_h) continue;
            int channel = block_channel + part * CHANNELS + OWN * j;
#ifdef __CUDA_ARCH__
            // Unknown to the compiler: operands of the epilogue are read when they are used, registers hold filters.
            asm volatile("" : "+r"(channel));
#endif
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (q + 8 * APART * half >= (int)p.out_w) continue;
                #pragma unroll
                for (int v = 0; v < OWN; v += WIDTH) {
                    const Place out = place_of(p, slice_out, channel + v, out0 + row, q + 8 * APART * half);
                    if (out.at[1] >= (int)p.channels_out) continue;
                    Accum acc[WIDTH];
                    #pragma unroll
                    for (int e = 0; e < WIDTH; ++e) acc[e] = (Accum)sum[(v + e) / 2][2 * half + (v + e) % 2];
                    epilogue(p, out.at, acc);
                }
            }
        }
        __syncthreads();
        slot ^= 1;
    }
    await_copies<0>();
}
