// Direct convolution with few channels per group on tensor cores, fprop and dgrad of unit stride: filters as matrices
// that are zero off the diagonal.
//
// A warp owns 16 channels of 8 strips of TW output columns, two rows of them at a time. Rows of its products are the
// strips, first of the upper output row, then of the lower; columns and depth are channels. So a lane's operands are
// its channels of one pixel as they lie in memory, and a column or a row further is another register. Products are
// 16 deep: two taps of the same 8 channels where groups are narrow, else one tap of 16 channels.
//
// Lane 4 * g + j holds channels 4j .. 4j + 3 of strip g: in products `half` 0 the first two, in those of 1 the others.
//
// A weight off the diagonal is 0, but 0 times infinity is not: a lane that finds NaN among its results computes them
// again, without products of other channels.

constexpr int STRIPS = 8, OWN = 4;                    // strips of a warp; channels of a lane
constexpr int CHANNELS = 16 * WARPS;                  // of a block
constexpr int IW = (TW - 1) * STRIDE_W + S;           // gathered columns of a strip
constexpr int STEP_W = TW * STRIDE_W;                 // from one strip to the next
constexpr int COLUMNS = (STRIPS - 1) * STEP_W + IW;   // of a block
// Strips are apart such that the loads of a warp meet all banks.
constexpr int STRIP = STEP_W * CHANNELS + (STEP_W * CHANNELS / 16 % 2 == 0 ? 16 : 0);
constexpr int PITCH = (COLUMNS - 1) / STEP_W * STRIP + ((COLUMNS - 1) % STEP_W + 1) * CHANNELS;  // of a row
constexpr int STEP_OUT = 2 * PAIRS, STEP_IN = STEP_OUT * STRIDE_H;  // rows of a step
constexpr int EXTRA = (R - STRIDE_H + STEP_IN - 1) / STEP_IN;       // steps' rows that a step needs besides its own
constexpr int SLOTS = EXTRA + 1 + AHEAD, RING = SLOTS * STEP_IN;
constexpr int RING_BYTES = (RING * PITCH * (int)sizeof(Gathered) + 15) / 16 * 16;
constexpr bool NARROW = GROUP <= 2;  // two taps to a product
constexpr int PARTS = NARROW ? 1 : 2;
constexpr int SLAB = CHANNELS * GROUP * R * S;  // filter elements of a block

constexpr int PIECES = CHANNELS / CHUNK;
constexpr int COUNT = STEP_IN * COLUMNS * PIECES;
constexpr int TURNS = (COUNT + THREADS - 1) / THREADS;
static_assert(sizeof(Gathered) == 2 && TURNS <= 32, "16-bit floats; a bit for each piece");
static_assert(CHUNK * sizeof(Gathered) == 16, "whole pieces");

__device__ __forceinline__ constexpr int place_of(int column) {
    return column / STEP_W * STRIP + column % STEP_W * CHANNELS;
}

// The block's part of a filter element's place: output channel `o` and input channel `i` of the block, tap of a
// correlation.
__device__ __forceinline__ int filter_offset(const Params& p, int o, int i, int r, int s) {
    const int k = DGRAD ? i % GROUP : o % GROUP, c = DGRAD ? o % GROUP : i % GROUP;
    constexpr bool turned = FLIP != DGRAD;
    return o / GROUP * (GROUP * GROUP * R * S) + k * (int)p.filter_k + c * (int)p.filter_c +
        (turned ? R - 1 - r : r) * (int)p.filter_r + (turned ? S - 1 - s : s) * (int)p.filter_s;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_diagonal(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Gathered* const ring = (Gathered*)memory;
    Gathered* const slab = (Gathered*)(memory + RING_BYTES);

    unsigned int block = blockIdx.x;
    const int channel_block = (int)(block % (unsigned int)p.channel_blocks);
    block /= (unsigned int)p.channel_blocks;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int first = (int)(block % (unsigned int)p.segments * (unsigned int)p.segment_rows);
    const int n = (int)(block / (unsigned int)p.segments);
    const int last = first + (int)p.segment_rows < (int)p.out_h ? first + (int)p.segment_rows : (int)p.out_h;
    const int steps = (last - first + STEP_OUT - 1) / STEP_OUT;

    // Copies: which pieces of a step's rows are this thread's.
    int row = first * STRIDE_H + (int)p.in_row;  // the next to be copied
    const int end = (last - 1) * STRIDE_H + R + (int)p.in_row;
    const unsigned int rows = (unsigned int)(end < (int)p.in_h ? end > 0 ? end : 0 : (int)p.in_h);  // that are read
    const int in_column = column_block * STRIPS * STEP_W + (int)p.in_column, in_channel = channel_block * CHANNELS;
    const Gathered* from = p.gathered + n * p.gathered_n + row * p.gathered_h + in_column * p.gathered_w + in_channel;
    int offset[TURNS], target[TURNS];
    unsigned int inside = 0;
    #pragma unroll
    for (int i = 0; i < TURNS; ++i) {
        const int index = (int)threadIdx.x + i * THREADS;
        const int piece = index % PIECES, at = index / PIECES % COLUMNS, u = index / (PIECES * COLUMNS);
        if (index < COUNT && (unsigned int)(in_column + at) < (unsigned int)p.in_w &&
            in_channel + piece * CHUNK < (int)p.channels)
            inside |= 1u << i;
        offset[i] = u * (int)p.gathered_h + at * (int)p.gathered_w + piece * CHUNK;
        target[i] = u * PITCH + place_of(at) + piece * CHUNK;
    }
    auto fetch = [&](int slot) {
        Gathered* const to = ring + slot * (STEP_IN * PITCH);
        #pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const int index = (int)threadIdx.x + i * THREADS, u = index / (PIECES * COLUMNS);
            if (COUNT % THREADS == 0 || i + 1 < TURNS || index < COUNT)
                copy_async<16>(
                    to + target[i], from + offset[i],
                    (inside >> i & 1u) != 0 && (unsigned int)(row + u) < rows
                );
        }
        from += STEP_IN * p.gathered_h;
        row += STEP_IN;
    };

    {  // the block's filters as they lie in memory
        const Gathered* source = p.filter + (long long)channel_block * SLAB;
        const long long left = p.filter_elements - (long long)channel_block * SLAB;
        for (int i = threadIdx.x * FILTER_CHUNK; i < SLAB; i += THREADS * FILTER_CHUNK)
            copy_async<FILTER_CHUNK * (int)sizeof(Gathered)>(slab + i, i < left ? source + i : p.filter, i < left);
    }
    commit_copies();
    #pragma unroll
    for (int i = 0; i < SLOTS - 1; ++i) {
        if (i < steps + EXTRA) fetch(i);
        commit_copies();
    }

    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warp = (int)threadIdx.x / 32 % WARPS, pair = (int)threadIdx.x / (32 * WARPS);
    const int local = 16 * warp + OWN * j, channel = in_channel + local;
    const int column0 = (column_block * STRIPS + g) * TW;
    const Gathered* const here = ring + g * STRIP + local;

    await_copies<SLOTS - 1>();
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

    int slot = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        await_copies<AHEAD - 1>();
        __syncthreads();  // this step's rows are there for all, and all have left those that are overwritten next
        if (step + EXTRA + AHEAD < steps + EXTRA) fetch(slot == 0 ? SLOTS - 1 : slot - 1);
        commit_copies();

        const int top = slot * STEP_IN + pair * 2 * STRIDE_H;  // the first row of the warp, in the ring
        float sum[2][TW][4];
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int e = 0; e < 4; ++e) sum[half][t][e] = 0.0f;
        unsigned int x[R + STRIDE_H][IW][2];
        #pragma unroll
        for (int i = 0; i < R + STRIDE_H; ++i) {
            const int at = top + i < RING ? top + i : top + i - RING;
            #pragma unroll
            for (int c = 0; c < IW; ++c) {
                const uint2 word = *(const uint2*)(here + at * PITCH + place_of(c));
                x[i][c][0] = word.x;
                x[i][c][1] = word.y;
            }
            if (i < STRIDE_H) continue;
            const int r = i - STRIDE_H;
            if constexpr (NARROW) {
                #pragma unroll
                for (int s = 0; s < S; s += 2)
                    #pragma unroll
                    for (int t = 0; t < TW; ++t)
                        #pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            const int c = t * STRIDE_W + s;
                            if (s + 1 < S)
                                warp_product<Gathered, true>(
                                    sum[half][t], x[r][c][half], x[i][c][half], x[r][s + 1 < S ? c + 1 : c][half],
                                    x[i][s + 1 < S ? c + 1 : c][half], weight[r][s][half][0],
                                    weight[r][s + 1 < S ? s + 1 : s][half][0]
                                );
                            else
                                warp_product<Gathered, false>(
                                    sum[half][t], x[r][c][half], x[i][c][half], 0, 0, weight[r][s][half][0], 0
                                );
                        }
            } else {
                #pragma unroll
                for (int s = 0; s < S; ++s)
                    #pragma unroll
                    for (int t = 0; t < TW; ++t)
                        #pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            const int c = t * STRIDE_W + s;
                            warp_product<Gathered, true>(
                                sum[half][t], x[r][c][0], x[i][c][0], x[r][c][1], x[i][c][1], weight[r][s][half][0],
                                weight[r][s][half][PARTS - 1]
                            );
                        }
            }
        }

        float probe = 0.0f;
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            #pragma unroll
            for (int e = 0; e < 4; ++e) probe = fmaf(sum[0][t][e], sum[1][t][e], probe);
        const int out0 = first + (step * PAIRS + pair) * 2;
        if (channel < (int)p.channels && column0 < (int)p.out_w) {
            if (probe == probe) {
                #pragma unroll
                for (int h = 0; h < 2; ++h)
                    #pragma unroll
                    for (int t = 0; t < TW; ++t) {
                        if (out0 + h >= last || (!EXACT && column0 + t >= (int)p.out_w)) continue;
                        #pragma unroll
                        for (int v = 0; v < OWN; v += WIDTH) {
                            const int at[4] = {n, channel + v, out0 + h, column0 + t};
                            float acc[WIDTH];
                            #pragma unroll
                            for (int e = 0; e < WIDTH; ++e) acc[e] = sum[(v + e) / 2][t][2 * h + (v + e) % 2];
                            epilogue(p, at, acc);
                        }
                    }
            } else {
                #pragma unroll 1
                for (int which = 0; which < 2 * TW * OWN; which += WIDTH) {
                    const int v = which % OWN, t = which / OWN % TW, h = which / (OWN * TW);
                    if (out0 + h >= last || column0 + t >= (int)p.out_w) continue;
                    const int at[4] = {n, channel + v, out0 + h, column0 + t};
                    float acc[WIDTH];
                    #pragma unroll
                    for (int e = 0; e < WIDTH; ++e) acc[e] = 0.0f;
                    #pragma unroll 1
                    for (int tap = 0; tap < R * S; ++tap) {
                        const int r = tap / S, s = tap % S;
                        const int line = (top + h * STRIDE_H + r) % RING, c = t * STRIDE_W + s;
                        const Gathered* const pixel = ring + line * PITCH + g * STRIP + place_of(c);
                        #pragma unroll
                        for (int e = 0; e < WIDTH; ++e) {
                            const int o = local + v + e, group = o / GROUP * GROUP;
                            #pragma unroll 1
                            for (int i = group; i < group + GROUP; ++i)
                                acc[e] = fmaf(
                                    widen<float>(pixel[i]), widen<float>(slab[filter_offset(p, o, i, r, s)]), acc[e]
                                );
                        }
                    }
                    epilogue(p, at, acc);
                }
            }
        }
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
    }
    await_copies<0>();
}
