// Filter gradient with few channels per group on tensor cores: for each tap, a sum over pixels of products of x and dy.
//
// The walk is that of direct_wgrad.cu. A warp owns 8 channels of 16 columns: its products are 16 pixels of a row deep,
// their columns are channels of x, their rows channels of dy: first of the pixels themselves, then of those one to the
// left, which is the tap STRIDE_W to the right. Of the results only those within a group are used.
//
// Pixels that are not there are zeros here (direct_wgrad_exact.cuh).

constexpr int GROUP = GROUP_OUT;     // channels of a group, on either side
constexpr int CHANNELS = 8 * WARPS;  // of a block
constexpr int PIXEL = CHANNELS + (WARPS % 2 ? 0 : 8);  // neighbours are in different banks
constexpr int SHIFTS = S / (2 * STRIDE_W) * STRIDE_W + (S % (2 * STRIDE_W) < STRIDE_W ? S % (2 * STRIDE_W) : STRIDE_W);
constexpr int LOADS = (SHIFTS + 1) / 2;

// The column of x that a shift begins at: its taps are this one and the one STRIDE_W further.
constexpr __host__ __device__ int shift_tap(int i) { return i / STRIDE_W * (2 * STRIDE_W) + i % STRIDE_W; }

typedef Ring<Gathered, ROWS * IN_ROWS, COLUMNS, CHANNELS, 8, STAGES, PIXEL, IMAGE_COLUMNS> Images;
typedef Ring<Gathered, ROWS, TILES * TW + 1, CHANNELS, 8, STAGES, PIXEL, GRADIENT_COLUMNS> Gradients;  // from one column to the left
static_assert(sizeof(Gathered) == 2 && TW == 16, "products are 16 deep");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_sliding_mma_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int channel_block = (int)blockIdx.x;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warp = (int)threadIdx.x / 32 % WARPS, tile = (int)threadIdx.x / (32 * WARPS);

    Items<Images, Gradients, ROWS, 1> items(memory, channel_block * CHANNELS, channel_block * CHANNELS);
    Images& images = items.images;
    Gradients& gradients = items.gradients;
    images.clear();
    gradients.clear();

    float sum[R][SHIFTS][4];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int i = 0; i < SHIFTS; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[r][i][e] = 0.0f;

    // The rows of matrices that this lane names: of dy the pixels and their left neighbours, of x two shifts.
    const int matrix = lane / 8, line = lane % 8;
    const int dy_column = tile * TW + matrix / 2 * 8 + line + 1 - matrix % 2;
    const int x_column = (tile * TW + matrix % 2 * 8 + line) * STRIDE_W;
    int x_shift[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i)
        x_shift[i] = (matrix / 2 && 2 * i + 1 < SHIFTS ? shift_tap(2 * i + 1) : shift_tap(2 * i)) * PIXEL;

    #pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) items.fetch(p, (int)p.channels_out);
    int slot = 0;
    #pragma unroll 1
    for (unsigned int index = blockIdx.y; index < (unsigned int)p.items; index += gridDim.y) {
        const Item<ROWS> item(p, index);
        unsigned int dy[WINDOW][4];
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k)
            #pragma unroll
            for (int e = 0; e < 4; ++e) dy[k][e] = 0;
        #pragma unroll 1
        for (int turn = 0; turn < item.turns; ++turn) {
            await_copies<STAGES - 2>();
            __syncthreads();  // this turn is there for all, and all have left the slot that is filled next
            items.fetch(p, (int)p.channels_out);
            const Gathered* next = gradients.at(slot, 0, dy_column, 8 * warp);
            const Gathered* here = images.at(slot, 0, x_column, 8 * warp);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            #pragma unroll
            for (int count = 0; count < ROWS; ++count) {
                #pragma unroll
                for (int k = 0; k + 1 < WINDOW; ++k)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) dy[k][e] = dy[k + 1][e];
                load_transposed(dy[WINDOW - 1], next + count * ((TILES * TW + 1) * PIXEL));
                #pragma unroll
                for (int u = 0; u < IN_ROWS; ++u) {
                    if (u >= R) continue;
                    unsigned int x[LOADS][4];
                    #pragma unroll
                    for (int i = 0; i < LOADS; ++i)
                        load_transposed(x[i], here + (count * IN_ROWS + u) * (COLUMNS * PIXEL) + x_shift[i]);
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k) {
                        const int r = row_tap(u, k);
                        if (r < 0) continue;
                        #pragma unroll
                        for (int i = 0; i < SHIFTS; ++i)
                            warp_product<Gathered, true>(
                                sum[r][i], dy[k][0], dy[k][1], dy[k][2], dy[k][3], x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]
                            );
                    }
                }
            }
        }
    }
    await_copies<0>();
    pdl_trigger();

    // Sums of the block's tiles, a row of taps at a time. A lane has sums of channel g of dy with 2j and 2j + 1 of x.
    float* const shared = (float*)memory;
    constexpr int ROW = S * GROUP * CHANNELS;
    bool strange = false;
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < SHIFTS; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int c = 2 * j + e % 2, s = shift_tap(i) + e / 2 * STRIDE_W;
                if (s >= S || c / GROUP != g / GROUP) continue;
                strange |= sum[r][i][e] != sum[r][i][e];
                shared[tile * ROW + (s * GROUP + c % GROUP) * CHANNELS + 8 * warp + g] = sum[r][i][e];
            }
        __syncthreads();
        for (int i = threadIdx.x; i < ROW; i += THREADS) {
            float all = shared[i];
            #pragma unroll
            for (int t = 1; t < TILES; ++t) all += shared[t * ROW + i];
            const long long tap = (long long)(blockIdx.y * R + r) * (S * GROUP) + i / CHANNELS;
            p.partial[tap * p.padded_channels + channel_block * CHANNELS + i % CHANNELS] = all;
        }
    }
    if (__syncthreads_or(strange)) add_exactly<ROWS, CHANNELS>(p, channel_block);
}
