// Forward convolution of an image of few channels (1 to 4) in fp32 on the ordinary units: a network's first layer.
//
// Rows of the image pass through shared memory as in direct_stem.cu: the window of one filter row is S * C neighbouring
// numbers. Filters lie there as [number of the sum][channel]. A warp takes 4 * TM neighbouring pixels of a row and BN
// channels; a thread has every fourth of those pixels, and of every 32 channels 4 neighbours. Two numbers of a window are
// read at once where windows of all pixels begin alike.

constexpr int BN = 8 * TN;            // channels of a block
constexpr int LINE = BN + 4;          // from number to number of the sum: threads that fill it are in different banks
constexpr bool IN_PAIRS = STRIDE_W * C % 2 == 0;
// Numbers of a window before the first pair, and up to the end of the last.
constexpr int FIRST = IN_PAIRS ? HEAD : 0, LAST = IN_PAIRS ? HEAD + (WINDOW - HEAD) / 2 * 2 : 0;
constexpr int UNROLL = WINDOW <= 24 ? WINDOW : 4;
static_assert(TN % 4 == 0 && 4 % WIDTH == 0, "channels of a thread are neighbours by fours");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_stem_fp32(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const rows = (Element*)memory;
    float* const table = rows + STAGES * STAGE;
    // Neighbouring lanes read the same channels: a half warp's 16 bytes a lane are one pass over the banks.
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int j = lane / 2 % 8, m = lane % 2 + lane / 16 * 2;
    const int block_channel = (int)blockIdx.y * BN;

    clear_margins(p, rows);
    unsigned int tile = blockIdx.x;
    if (tile < (unsigned int)p.tiles) fetch(p, rows, tile);
    commit_copies();
    #pragma unroll 4
    for (int i = threadIdx.x; i < FILTER_SIZE * BN; i += THREADS) {
        const int k = i / FILTER_SIZE, at = i - k * FILTER_SIZE;
        const long long offset = (long long)(block_channel + k) * FILTER_SIZE + place_in_filter(p, at / WINDOW, at % WINDOW);
        table[at * LINE + k] = block_channel + k < (int)p.channels_out ? p.filter[offset] : 0.0f;
    }

    int slot = 0;
    for (; tile < (unsigned int)p.tiles; tile += gridDim.x) {
        if (tile + gridDim.x < (unsigned int)p.tiles) fetch(p, rows + (slot ^ 1) * STAGE, tile + gridDim.x);
        commit_copies();
        await_copies<1>();
        __syncthreads();
        const int slice_out = (int)(tile / (unsigned int)p.row_tiles);
        const int out0 = (int)(tile % (unsigned int)p.row_tiles) * TP;
        #pragma unroll 1
        for (int unit = warp; unit < TP * (int)p.column_tiles; unit += THREADS / 32) {
            const int row = unit / (int)p.column_tiles, column = unit - row * (int)p.column_tiles;
            const int q0 = column * (4 * TM) + m;
            const float* const first = rows + slot * STAGE + row * STRIDE_H * PITCH + (int)p.window + q0 * (STRIDE_W * C);
            const float *x = first, *w = table + 4 * j;
            float sum[TM][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int v = 0; v < TN; ++v) sum[i][v] = 0.0f;
            // COUNT numbers of the windows, from `at` on.
            auto add = [&](auto& numbers, int at) {
                constexpr int COUNT = sizeof(numbers[0]) / sizeof(float);
                #pragma unroll
                for (int i = 0; i < TM; ++i) numbers[i] = load_vec<COUNT>(x + i * (4 * STRIDE_W * C) + at);
                #pragma unroll
                for (int e = 0; e < COUNT; ++e) {
                    Vec<float, 4> weights[TN / 4];
                    #pragma unroll
                    for (int v = 0; v < TN / 4; ++v) weights[v] = load_vec<4>(w + (at + e) * LINE + 32 * v);
                    #pragma unroll
                    for (int i = 0; i < TM; ++i)
                        #pragma unroll
                        for (int v = 0; v < TN; ++v)
                            sum[i][v] = fmaf(numbers[i].at[e], weights[v / 4].at[v % 4], sum[i][v]);
                }
            };
            #pragma unroll 1
            for (int r = 0; r < FILTER_ROWS; ++r, w += WINDOW * LINE) {
                x = first + row_at(r);
                Vec<float, 1> one[TM];
                Vec<float, 2> two[TM];
                if constexpr (FIRST > 0) add(one, 0);
                #pragma unroll UNROLL
                for (int at = FIRST; at < LAST; at += 2) add(two, at);
                #pragma unroll UNROLL
                for (int at = LAST; at < WINDOW; ++at) add(one, at);
            }
            if (out0 + row >= (int)p.out_h) continue;
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                if (q0 + 4 * i >= (int)p.out_w) continue;
                #pragma unroll
                for (int v = 0; v < TN; v += WIDTH) {
                    const int channel = block_channel + v / 4 * 32 + 4 * j + v % 4;
                    const Place out = place_of(p, slice_out, channel, out0 + row, q0 + 4 * i);
                    if (channel >= (int)p.channels_out) continue;
                    float acc[WIDTH];
                    #pragma unroll
                    for (int e = 0; e < WIDTH; ++e) acc[e] = sum[i][v + e];
                    epilogue(p, out.at, acc);
                }
            }
        }
        __syncthreads();
        slot ^= 1;
    }
    await_copies<0>();
}
