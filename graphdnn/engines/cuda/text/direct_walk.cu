// Direct convolution with few channels per group on tensor cores, fprop and dgrad: filters as matrices that are zero
// off the diagonal.
//
// The walk is that of direct.cu: rows pass through a ring in shared memory, a window of sums stays in registers. A warp
// owns 16 channels of 16 tiles of TW output columns, side by side (TW is 1, or dgrad's stride). Rows of its products
// are the tiles, columns and depth are channels: operands are pixels as they lie in memory, and a row's operands serve
// every row of the window. Products are 16 deep: two taps of the same 8 channels where groups are narrow, else one tap
// of 16 channels.
//
// Lane 4 * g + j holds channels 4j .. 4j + 3 of tiles g and g + 8: in products `half` 0 the first two of them, in
// those of 1 the others.
//
// A weight off the diagonal is 0, but 0 times infinity is not: a lane that finds NaN among its results computes them
// again, without products of other channels.

constexpr int OWN = 4;                 // channels of a lane
constexpr int CHANNELS = 16 * WARPS;   // of a block
constexpr bool NARROW = GROUP <= 2;    // two taps to a product
constexpr int PARTS = NARROW ? 1 : 2;
constexpr int SLAB = CHANNELS * GROUP * R * S;  // filter elements of a block
// Neighbouring pixels of a warp's loads are in different banks.
constexpr int PIXEL = STEP_W % 2 ? CHANNELS + (CHANNELS % 32 ? 0 : 16) : CHANNELS + 8;
typedef Ring<Gathered, ROWS * IN_ROWS, COLUMNS, CHANNELS, 8, STAGES, PIXEL> Rows;  // ROWS steps at a time
static_assert(sizeof(Gathered) == 2, "pairs of 16-bit floats");

// The block's part of a filter element's place: output channel `o` and input channel `i` of the block.
__device__ __forceinline__ int filter_offset(const Params& p, int o, int i, int r, int s) {
    const int k = DGRAD ? i % GROUP : o % GROUP, c = DGRAD ? o % GROUP : i % GROUP;
    return o / GROUP * (GROUP * GROUP * R * S) + k * (int)p.filter_k + c * (int)p.filter_c +
        (FLIP ? R - 1 - r : r) * (int)p.filter_r + (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

// One output from memory, the plain way. `o`: its channel in the block.
__device__ __forceinline__ float exact_sum(const Params& p, const Gathered* slab, int n, int channel0, int o, int h, int w) {
    float sum = 0.0f;
    const int group = o / GROUP * GROUP;
    #pragma unroll 1
    for (int tap = 0; tap < R * S; ++tap) {
        const int r = tap / S, s = tap % S;
        int row = DGRAD ? h + (int)p.pad_h - r : h * STRIDE_H - (int)p.pad_h + r;
        int column = DGRAD ? w + (int)p.pad_w - s : w * STRIDE_W - (int)p.pad_w + s;
        if (DGRAD && (row % STRIDE_H != 0 || column % STRIDE_W != 0)) continue;
        if (DGRAD) row /= STRIDE_H, column /= STRIDE_W;
        const bool inside = (unsigned int)row < (unsigned int)p.in_h && (unsigned int)column < (unsigned int)p.in_w;
        const Gathered* const pixel =
            p.gathered + n * p.gathered_n + row * p.gathered_h + column * p.gathered_w + channel0;
        #pragma unroll 1
        for (int i = group; i < group + GROUP; ++i)
            sum = fmaf(
                inside ? widen<float>(pixel[i]) : 0.0f, widen<float>(slab[filter_offset(p, o, i, r, s)]), sum
            );
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_walk(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Gathered* const slab = (Gathered*)(memory + Rows::BYTES);

    unsigned int block = blockIdx.x;
    const int channel_block = (int)(block % (unsigned int)p.channel_blocks);
    block /= (unsigned int)p.channel_blocks;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int first = (int)(block % (unsigned int)p.segments * (unsigned int)p.segment_rows);
    const int n = (int)(block / (unsigned int)p.segments);
    const int last = first + (int)p.segment_rows < (int)p.rows ? first + (int)p.segment_rows : (int)p.rows;
    const int steps = last - first + EXTRA;
    const int row0 = (DGRAD ? first - EXTRA : first) * IN_ROWS + (int)p.in_row;

    // Steps whose rows all lie above the image add nothing to empty sums.
    const int above = row0 < 0 ? -row0 / IN_ROWS : 0;
    const int start = above < EXTRA ? above : EXTRA;
    const int channel0 = channel_block * CHANNELS;

    Rows ring(memory);
    ring.start(
        p.gathered + n * p.gathered_n, p.gathered_h, p.gathered_w, (int)p.in_h, (int)p.in_w, (int)p.channels,
        row0 + start * IN_ROWS, column_block * TILES * STEP_W + BEFORE + (int)p.in_column, channel0
    );
    {  // the block's filters as they lie in memory
        const Gathered* source = p.filter + (long long)channel_block * SLAB;
        const long long left = p.filter_elements - (long long)channel_block * SLAB;
        for (int i = threadIdx.x * FILTER_CHUNK; i < SLAB; i += THREADS * FILTER_CHUNK)
            copy_async<FILTER_CHUNK * (int)sizeof(Gathered)>(slab + i, i < left ? source + i : p.filter, i < left);
    }
    commit_copies();
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (start + i * ROWS < steps) ring.fetch(i);
        commit_copies();
    }

    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warp = (int)threadIdx.x / 32 % WARPS, tile = (int)threadIdx.x / (32 * WARPS) * 16 + g;
    const int local = 16 * warp + OWN * j, channel = channel0 + local;
    const int column0 = (column_block * TILES + tile) * TW + (int)p.out_column;

    await_copies<STAGES - 1>();
    __syncthreads();
    unsigned int weight[R][S][2][PARTS];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                #pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    const int o = OWN * (g / 2) + 2 * half + g % 2;
                    unsigned int both = 0;
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const int i = OWN * j + 2 * (NARROW ? half : part) + e;
                        if (o / GROUP == i / GROUP)
                            both |= (unsigned int)slab[filter_offset(p, 16 * warp + o, 16 * warp + i, r, s)].bits << 16 * e;
                    }
                    weight[r][s][half][part] = both;
                }

    float sum[WINDOW][TW][2][4];
    #pragma unroll
    for (int k = 0; k < WINDOW; ++k)
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            #pragma unroll
            for (int e = 0; e < 8; ++e) sum[k][t][e / 4][e % 4] = 0.0f;

    int slot = 0;
    #pragma unroll 1
    for (int step = start; step < steps;) {
        await_copies<STAGES - 2>();
        __syncthreads();  // these rows are there for all, and all have left those that are overwritten next
        if (step + (STAGES - 1) * ROWS < steps) ring.fetch(slot == 0 ? STAGES - 1 : slot - 1);
        commit_copies();
        const Gathered* here = ring.at(slot, 0, tile * STEP_W, local);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        #pragma unroll 1
        for (int count = 0; count < ROWS && step < steps; ++count, ++step) {
            #pragma unroll
            for (int u = 0; u < IN_ROWS; ++u, here += COLUMNS * PIXEL) {
                if (u >= R) continue;
                unsigned int x[IW][2][2];  // of a column: half, tile
                #pragma unroll
                for (int i = 0; i < IW; ++i)
                    #pragma unroll
                    for (int m = 0; m < 2; ++m) {
                        const uint2 words = *(const uint2*)(here + (i + 8 * m * STEP_W) * PIXEL);
                        x[i][0][m] = words.x;
                        x[i][1][m] = words.y;
                    }
                #pragma unroll
                for (int k = 0; k < WINDOW; ++k) {
                    const int r = row_tap(u, k);
                    if (r < 0) continue;
                    #pragma unroll
                    for (int i = 0; i < IW; i += NARROW ? 2 : 1)
                        #pragma unroll
                        for (int t = 0; t < TW; ++t)
                            #pragma unroll
                            for (int half = 0; half < 2; ++half) {
                                const int next = i + 1 < IW ? i + 1 : i;
                                const int s = column_tap(i, t), s1 = i + 1 < IW ? column_tap(next, t) : -1;
                                float(&to)[4] = sum[k][t][half];
                                if constexpr (!NARROW) {
                                    if (s >= 0)
                                        warp_product<Gathered, true>(
                                            to, x[i][0][0], x[i][0][1], x[i][1][0], x[i][1][1], weight[r][s][half][0],
                                            weight[r][s][half][PARTS - 1]
                                        );
                                } else if (s >= 0 && s1 >= 0)
                                    warp_product<Gathered, true>(
                                        to, x[i][half][0], x[i][half][1], x[next][half][0], x[next][half][1],
                                        weight[r][s][half][0], weight[r][s1][half][0]
                                    );
                                else if (s >= 0)
                                    warp_product<Gathered, false>(
                                        to, x[i][half][0], x[i][half][1], 0, 0, weight[r][s][half][0], 0
                                    );
                                else if (s1 >= 0)
                                    warp_product<Gathered, false>(
                                        to, x[next][half][0], x[next][half][1], 0, 0, weight[r][s1][half][0], 0
                                    );
                            }
                }
            }
            // Rows are complete: they go through the epilogue, and the window moves on.
            if (step >= EXTRA && channel < (int)p.channels) {
                const int out0 = (first + step - EXTRA) * OUT_ROWS + (int)p.out_row;
                float probe = 0.0f;
                #pragma unroll
                for (int k = 0; k < OUT_ROWS; ++k)
                    #pragma unroll
                    for (int t = 0; t < TW; ++t)
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) probe = fmaf(sum[k][t][0][e], sum[k][t][1][e], probe);
                if (probe == probe) {
                    #pragma unroll
                    for (int k = 0; k < OUT_ROWS; ++k)
                        #pragma unroll
                        for (int m = 0; m < 2; ++m)
                            #pragma unroll
                            for (int t = 0; t < TW; ++t) {
                                const int out = out0 + k, column = column0 + 8 * m * TW + t;
                                if (OUT_ROWS > 1 && (unsigned int)out >= (unsigned int)p.out_h) continue;
                                if ((unsigned int)column >= (unsigned int)p.out_w) continue;
                                #pragma unroll
                                for (int v = 0; v < OWN; v += WIDTH) {
                                    const int at[4] = {n, channel + v, out, column};
                                    float acc[WIDTH];
                                    #pragma unroll
                                    for (int e = 0; e < WIDTH; ++e) acc[e] = sum[k][t][(v + e) / 2][2 * m + (v + e) % 2];
                                    epilogue(p, at, acc);
                                }
                            }
                } else {
                    #pragma unroll 1
                    for (int which = 0; which < OUT_ROWS * 2 * TW * OWN; which += WIDTH) {
                        const int v = which % OWN, t = which / OWN % TW, m = which / (OWN * TW) % 2;
                        const int out = out0 + which / (OWN * TW * 2), column = column0 + 8 * m * TW + t;
                        if ((unsigned int)out >= (unsigned int)p.out_h || (unsigned int)column >= (unsigned int)p.out_w)
                            continue;
                        const int at[4] = {n, channel + v, out, column};
                        float acc[WIDTH] = {};
                        #pragma unroll 1
                        for (int which_e = 0; which_e < WIDTH; ++which_e) {
                            const float exact = exact_sum(p, slab, n, channel0, local + v + which_e, out, column);
                            #pragma unroll
                            for (int e = 0; e < WIDTH; ++e) acc[e] = e == which_e ? exact : acc[e];
                        }
                        epilogue(p, at, acc);
                    }
                }
            }
            #pragma unroll
            for (int k = 0; k < WINDOW; ++k)
                #pragma unroll
                for (int t = 0; t < TW; ++t)
                    #pragma unroll
                    for (int e = 0; e < 8; ++e)
                        sum[k][t][e / 4][e % 4] =
                            k + OUT_ROWS < WINDOW ? sum[k + OUT_ROWS < WINDOW ? k + OUT_ROWS : 0][t][e / 4][e % 4] : 0.0f;
        }
    }
    await_copies<0>();
}
