// Direct convolution with few channels per group on tensor cores (mma.sync), fprop and dgrad.
//
// Tile:       a warp owns 2 * CHANNEL_PAIRS channels of TILES tiles of TW = 4 output columns. The CTA slides down a segment of
//             rows, and the accumulators of WINDOW output rows stay in registers, as in direct.cu.
// MMA:        one instruction takes a pair of channels. Its operands are
//               M   the tiles,
//               K   (column of the tile's input, channel): 8 or 4 columns,
//               N   (column of the tile's output, channel).
//             B is a banded matrix: the filter, shifted along the columns. A depthwise filter therefore uses S of
//             8 * COLUMN_GROUPS products, and the others multiply zeros. Lane 4 * g + j reads and accumulates column j of
//             tiles g and g + 8, so with unit stride a lane is a pixel.
// Pipeline:   cp.async fills a ring of STAGES stages, each STEPS_PER_STAGE steps.
// Epilogue:   finished rows pass through shared memory, so that global stores are contiguous 16-byte vectors.
// NaN:        a weight outside the band is 0, and 0 * inf is NaN. A CTA that finds NaN among its results recomputes
//             all of them without padding.
//
// Required constants (from the generator), besides those of direct_row_ring.cuh: GROUP_CHANNELS: channels of a group. WARPS,
// CHANNEL_PAIRS, STEPS_PER_STAGE, STAGES: see above. FILTER_COPY_ELEMS: elements of a copy of filters. VEC_WIDTH: channels of
// an epilogue call. FLIP: convolution instead of correlation. CTAS_PER_SM: CTAs that fit on an SM.

#include "direct_copy.cuh"
#include "direct_mma.cuh"
#include "direct_row_ring.cuh"

constexpr int THREAD_CHANNELS = 2 * CHANNEL_PAIRS;                      // channels that a lane accumulates
constexpr int CHANNELS = THREAD_CHANNELS * WARPS;               // channels of a CTA
// Pairs of input channels for a pair of output channels.
constexpr int INPUT_PAIRS = GROUP_CHANNELS <= 2 ? 1 : GROUP_CHANNELS / 2;
constexpr int COLUMN_GROUPS = (IW + TW - 1) / TW;          // groups of TW columns in a tile's input
constexpr int ROW_COLUMNS = (TILES - 1) * STEP_W + COLUMN_GROUPS * TW;
constexpr int FILTER_ELEMENTS = CHANNELS * GROUP_CHANNELS * R * S;      // filter elements of a CTA
constexpr int PIXEL_STRIDE = CHANNELS + (CHANNELS / 8 % 2 ? 0 : 8);  // neighbouring pixels start in different banks
// A stage is STEPS_PER_STAGE steps.
typedef RowRing<ImageElement, STEPS_PER_STAGE * IN_ROWS, ROW_COLUMNS, CHANNELS, 8, STAGES, PIXEL_STRIDE> XRing;
static_assert(TW == 4 && ROW_COLUMNS >= COLUMNS && sizeof(ImageElement) == 2 && CHANNELS % 8 == 0, "pairs of 16-bit floats");

// Staging of finished rows in shared memory: consecutive threads store consecutive vectors of a pixel.
constexpr int VEC_ELEMS = 16 / (int)sizeof(Out), PIXEL_VECS = CHANNELS / VEC_ELEMS;
// Elements between pixels, which start in different banks.
constexpr int OUT_PIXEL_STRIDE = CHANNELS + (PIXEL_VECS % 2 ? 0 : VEC_ELEMS);
constexpr int STAGED_ROWS = STEPS_PER_STAGE * OUT_ROWS, COLUMNS_OUT = TILES * TW;
constexpr int PIXELS_PER_PASS = THREADS / PIXEL_VECS;             // pixels that the CTA stores in one pass
constexpr int STORE_PASSES = (STAGED_ROWS * COLUMNS_OUT + PIXELS_PER_PASS - 1) / PIXELS_PER_PASS;
constexpr int EPILOGUE_ELEMENTS = STAGED_ROWS * COLUMNS_OUT * OUT_PIXEL_STRIDE;
static_assert(CHANNELS % VEC_ELEMS == 0 && THREADS % PIXEL_VECS == 0, "whole vectors");
constexpr int FILTER_BYTES = (FILTER_ELEMENTS * (int)sizeof(ImageElement) + 15) / 16 * 16;

// The offset of a filter element within the CTA's filters: output channel `o` and input channel `i` of the CTA.
__device__ __forceinline__ int filter_offset(const Params& p, int o, int i, int r, int s) {
    const int k = DGRAD ? i % GROUP_CHANNELS : o % GROUP_CHANNELS, c = DGRAD ? o % GROUP_CHANNELS : i % GROUP_CHANNELS;
    return o / GROUP_CHANNELS * (GROUP_CHANNELS * GROUP_CHANNELS * R * S) + k * (int)p.filter_k + c * (int)p.filter_c +
        (FLIP ? R - 1 - r : r) * (int)p.filter_r + (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

__device__ __forceinline__ int clamp_index(int i, int size) { return i < 0 ? 0 : i < size ? i : size - 1; }

// Computes one output from global memory without padding. `o` is its channel in the CTA.
__device__ __forceinline__ float exact_sum(
    const Params& p, const ImageElement* smem_filter, int n, int channel0, int o, int h, int w
) {
    float accum = 0.0f;
    const int first_channel = o / GROUP_CHANNELS * GROUP_CHANNELS;
    #pragma unroll 1
    for (int tap = 0; tap < R * S; ++tap) {
        const int r = tap / S, s = tap % S;
        int row = DGRAD ? h + (int)p.pad_h - r : h * STRIDE_H - (int)p.pad_h + r;
        int column = DGRAD ? w + (int)p.pad_w - s : w * STRIDE_W - (int)p.pad_w + s;
        if (DGRAD && (row % STRIDE_H != 0 || column % STRIDE_W != 0)) continue;
        if (DGRAD) row /= STRIDE_H, column /= STRIDE_W;
        if ((unsigned int)row >= (unsigned int)p.in_h || (unsigned int)column >= (unsigned int)p.in_w) continue;
        const ImageElement* const pixel =
            p.image + n * p.image_n + row * p.image_h + column * p.image_w + channel0;
        #pragma unroll 1
        for (int i = first_channel; i < first_channel + GROUP_CHANNELS; ++i)
            accum = fmaf(widen<float>(pixel[i]), widen<float>(smem_filter[filter_offset(p, o, i, r, s)]), accum);
    }
    return accum;
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_sliding_mma(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    ImageElement* const smem_filter = (ImageElement*)(memory + XRing::BYTES);
    Out* const epilogue_smem = (Out*)(memory + XRing::BYTES + FILTER_BYTES);

    unsigned int block = blockIdx.x;
    const int channel_block = (int)(block % (unsigned int)p.channel_blocks);
    block /= (unsigned int)p.channel_blocks;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int first = (int)(block % (unsigned int)p.segments * (unsigned int)p.segment_rows);
    const int n = (int)(block / (unsigned int)p.segments);
    const int last = first + (int)p.segment_rows < (int)p.rows ? first + (int)p.segment_rows : (int)p.rows;
    const int steps = last - first + WARMUP_STEPS;
    const int row0 = (DGRAD ? first - WARMUP_STEPS : first) * IN_ROWS + (int)p.in_row;

    // Steps above the image contribute nothing, so the loop skips them.
    const int above = row0 < 0 ? -row0 / IN_ROWS : 0;
    const int start = above < WARMUP_STEPS ? above : WARMUP_STEPS;
    const int channel0 = channel_block * CHANNELS;
    const int column0 = column_block * COLUMNS_OUT + (int)p.out_column;

    XRing ring(memory);
    ring.begin_image(
        p.image + n * p.image_n, p.image_h, p.image_w, (int)p.in_h, (int)p.in_w, (int)p.channels,
        row0 + start * IN_ROWS, column_block * TILES * STEP_W + FIRST_COLUMN + (int)p.in_column, channel0
    );
    {  // the CTA's filters, in the order of global memory
        const ImageElement* source = p.filter + (long long)channel_block * FILTER_ELEMENTS;
        const long long remaining = p.filter_elements - (long long)channel_block * FILTER_ELEMENTS;
        for (int i = threadIdx.x * FILTER_COPY_ELEMS; i < FILTER_ELEMENTS; i += THREADS * FILTER_COPY_ELEMS)
            cp_async_zfill<FILTER_COPY_ELEMS * (int)sizeof(ImageElement)>(smem_filter + i, i < remaining ? source + i : p.filter, i < remaining);
    }
    cp_async_commit();
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (start + i * STEPS_PER_STAGE < steps) ring.load_step(i);
        cp_async_commit();
    }

    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4, warp = (int)threadIdx.x / 32;
    const int local = THREAD_CHANNELS * warp;

    cp_async_wait<STAGES - 1>();
    __syncthreads();
    unsigned int weight[R][CHANNEL_PAIRS][INPUT_PAIRS][COLUMN_GROUPS];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int q = 0; q < CHANNEL_PAIRS; ++q)
            #pragma unroll
            for (int input_pair = 0; input_pair < INPUT_PAIRS; ++input_pair)
                #pragma unroll
                for (int column_group = 0; column_group < COLUMN_GROUPS; ++column_group) {
                    const int o = local + 2 * q + g % 2, s = column_tap(column_group * TW + j, g / 2);
                    unsigned int pair = 0;
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const int i = local + 2 * (q / INPUT_PAIRS * INPUT_PAIRS + input_pair) + e;
                        if (s >= 0 && o / GROUP_CHANNELS == i / GROUP_CHANNELS)
                            pair |= (unsigned int)smem_filter[filter_offset(p, o, i, r, s)].bits << 16 * e;
                    }
                    weight[r][q][input_pair][column_group] = pair;
                }

    float accum[WINDOW][CHANNEL_PAIRS][4];
    #pragma unroll
    for (int k = 0; k < WINDOW; ++k)
        #pragma unroll
        for (int q = 0; q < CHANNEL_PAIRS; ++q)
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum[k][q][e] = 0.0f;

    // Rows that the steps from `step` on have finished, from shared memory.
    const int vec_index = (int)threadIdx.x % PIXEL_VECS, first_pixel = (int)threadIdx.x / PIXEL_VECS;
    const bool writes = channel0 + vec_index * VEC_ELEMS < (int)p.channels;
    Out* const image = p.output + n * p.output_n + channel0 + vec_index * VEC_ELEMS;
    auto store_rows = [&](const Out* from, int step) {
        #pragma unroll
        for (int i = 0; i < STORE_PASSES; ++i) {
            const int pixel = first_pixel + i * PIXELS_PER_PASS, staged_row = pixel / COLUMNS_OUT, done = step + staged_row / OUT_ROWS;
            const int column = column0 + pixel - staged_row * COLUMNS_OUT;
            const int out = (first + done - WARMUP_STEPS) * OUT_ROWS + staged_row % OUT_ROWS + (int)p.out_row;
            if (writes && (STAGED_ROWS * COLUMNS_OUT % PIXELS_PER_PASS == 0 || pixel < STAGED_ROWS * COLUMNS_OUT) && done >= WARMUP_STEPS &&
                done < steps && (OUT_ROWS == 1 || (unsigned int)out < (unsigned int)p.out_h) &&
                (unsigned int)column < (unsigned int)p.out_w)
                store_vec<VEC_ELEMS>(
                    image + out * p.output_h + column * (int)p.output_w,
                    load_vec<VEC_ELEMS>(from + pixel * OUT_PIXEL_STRIDE + vec_index * VEC_ELEMS)
                );
        }
    };

    // A lane outside the image runs the epilogue for the nearest pixel inside. Its result is never stored.
    const int channel_at = clamp_index(channel0 + local, (int)p.channels - THREAD_CHANNELS + 1);
    const int column_at[2] = {
        clamp_index(column0 + lane, (int)p.out_w), clamp_index(column0 + 32 + lane, (int)p.out_w)
    };
    // A missing tile reads the last tile instead, because the memory after it belongs to copies in flight.
    const int low_tile = TILES >= 8 ? g : clamp_index(g, TILES);
    const int high_tile_offset = ((TILES >= 16 ? g + 8 : clamp_index(g + 8, TILES)) - low_tile) * STEP_W * PIXEL_STRIDE;
    ColumnOperands column_operands[THREAD_CHANNELS / VEC_WIDTH];
    #pragma unroll
    for (int v = 0; v < THREAD_CHANNELS; v += VEC_WIDTH) {
        const int coord[4] = {n, channel_at + v, 0, column_at[0]};
        load_column_operands(p, coord, column_operands[v / VEC_WIDTH]);
    }
    // NaN if any result is NaN, because products of neighbouring accumulators are added to it.
    float nan_probe = 0.0f;
    // Always 0, which the compiler does not know. The exclusive or makes it write operands once, into adjacent registers.
    const unsigned int zero = (unsigned int)p.zero;
    int stage = 0, buffer = 0;
    #pragma unroll 1
    for (int iteration = start; iteration < steps; iteration += STEPS_PER_STAGE) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the rows are visible to all threads, and no thread reads the rows that are overwritten next
        if (iteration + (STAGES - 1) * STEPS_PER_STAGE < steps) ring.load_step(stage == 0 ? STAGES - 1 : stage - 1);
        cp_async_commit();
        const ImageElement* const x_row = ring.row_ptr(stage, 0, low_tile * STEP_W + j, local);
        Vec<unsigned int, CHANNEL_PAIRS> x_words[COLUMN_GROUPS][2];  // words of tiles g and g + 8
        auto load_x_words = [&](int row) {
            #pragma unroll
            for (int column_group = 0; column_group < COLUMN_GROUPS; ++column_group)
                #pragma unroll
                for (int m = 0; m < 2; ++m)
                    x_words[column_group][m] = load_vec<CHANNEL_PAIRS>(
                        (const unsigned int*)(x_row + (row * ROW_COLUMNS + column_group * TW) * PIXEL_STRIDE + m * high_tile_offset)
                    );
        };
        load_x_words(0);
        if (iteration != start) store_rows(epilogue_smem + (buffer ^ 1) * EPILOGUE_ELEMENTS, iteration - STEPS_PER_STAGE);

        Out* const staged = epilogue_smem + buffer * EPILOGUE_ELEMENTS + lane * OUT_PIXEL_STRIDE + local;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        buffer ^= 1;
        #pragma unroll
        for (int staged_row = 0; staged_row < STEPS_PER_STAGE; ++staged_row) {
            #pragma unroll
            for (int u = 0; u < IN_ROWS; ++u) {
                if (u >= R) continue;
                unsigned int x[CHANNEL_PAIRS][(COLUMN_GROUPS + 1) / 2][4];
                #pragma unroll
                for (int q = 0; q < CHANNEL_PAIRS; ++q)
                    #pragma unroll
                    for (int column_group = 0; column_group < COLUMN_GROUPS; ++column_group)
                        #pragma unroll
                        for (int m = 0; m < 2; ++m) x[q][column_group / 2][column_group % 2 * 2 + m] = x_words[column_group][m].data[q] ^ zero;
                if (staged_row * IN_ROWS + u + 1 < STEPS_PER_STAGE * IN_ROWS && (u + 1 < R || staged_row + 1 < STEPS_PER_STAGE))
                    load_x_words(u + 1 < R && u + 1 < IN_ROWS ? staged_row * IN_ROWS + u + 1 : (staged_row + 1) * IN_ROWS);
                #pragma unroll
                for (int k = 0; k < WINDOW; ++k) {
                    const int r = row_tap(u, k);
                    if (r < 0) continue;
                    #pragma unroll
                    for (int column_group = 0; column_group < COLUMN_GROUPS; column_group += 2)
                        #pragma unroll
                        for (int input_pair = 0; input_pair < INPUT_PAIRS; ++input_pair)
                            #pragma unroll
                            for (int q = 0; q < CHANNEL_PAIRS; ++q) {
                                const unsigned int(&a)[4] = x[q / INPUT_PAIRS * INPUT_PAIRS + input_pair][column_group / 2];
                                const int next = column_group + 1 < COLUMN_GROUPS ? column_group + 1 : column_group;
                                if (column_group + 1 < COLUMN_GROUPS)
                                    mma_sync<ImageElement, true>(
                                        accum[k][q], a[0], a[1], a[2], a[3], weight[r][q][input_pair][column_group],
                                        weight[r][q][input_pair][next]
                                    );
                                else
                                    mma_sync<ImageElement, false>(
                                        accum[k][q], a[0], a[1], 0, 0, weight[r][q][input_pair][column_group], 0
                                    );
                            }
                }
            }
            // Writes the completed rows to the staging buffer and shifts the window. Rows before the first one are never read
            // back.
            #pragma unroll
            for (int k = 0; k < OUT_ROWS; ++k)
                #pragma unroll
                for (int m = 0; m < 2; ++m) {
                    if (8 * m + 8 > TILES && 8 * m + g >= TILES) continue;
                    #pragma unroll
                    for (int q = 0; q < CHANNEL_PAIRS; ++q) nan_probe = fmaf(accum[k][q][2 * m], accum[k][q][2 * m + 1], nan_probe);
                    Vec<Out, THREAD_CHANNELS> vec;
                    #pragma unroll
                    for (int v = 0; v < THREAD_CHANNELS; v += VEC_WIDTH) {
                        const int row = (first + iteration + staged_row - WARMUP_STEPS) * OUT_ROWS + k + (int)p.out_row;
                        const int coord[4] = {n, channel_at + v, clamp_index(row, (int)p.out_h), column_at[m]};
                        float acc[VEC_WIDTH];
                        #pragma unroll
                        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = accum[k][(v + e) / 2][2 * m + (v + e) % 2];
                        Out result[VEC_WIDTH];
                        epilogue(p, coord, column_operands[v / VEC_WIDTH], acc, result);
                        #pragma unroll
                        for (int e = 0; e < VEC_WIDTH; ++e) vec.data[v + e] = result[e];
                    }
                    store_vec<THREAD_CHANNELS>(staged + ((staged_row * OUT_ROWS + k) * COLUMNS_OUT + 32 * m) * OUT_PIXEL_STRIDE, vec);
                }
            #pragma unroll
            for (int k = 0; k < WINDOW; ++k)
                #pragma unroll
                for (int q = 0; q < CHANNEL_PAIRS; ++q)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e)
                        accum[k][q][e] = k + OUT_ROWS < WINDOW ? accum[k + OUT_ROWS < WINDOW ? k + OUT_ROWS : 0][q][e] : 0.0f;
        }
    }
    cp_async_wait<0>();
    const bool has_nan = __syncthreads_or(nan_probe != nan_probe);
    const int iterations = (steps - start + STEPS_PER_STAGE - 1) / STEPS_PER_STAGE;
    if (iterations > 0) store_rows(epilogue_smem + (buffer ^ 1) * EPILOGUE_ELEMENTS, start + (iterations - 1) * STEPS_PER_STAGE);
    if (!has_nan) return;
    __syncthreads();  // the stores below overwrite the last rows
    Out* const image0 = p.output + n * p.output_n + channel0;
    const int height = (last - first) * OUT_ROWS, pixel_vecs = CHANNELS / VEC_WIDTH;
    #pragma unroll 1
    for (int i = threadIdx.x; i < height * COLUMNS_OUT * pixel_vecs; i += THREADS) {
        const int first_channel = i % pixel_vecs * VEC_WIDTH, column = column0 + i / pixel_vecs % COLUMNS_OUT;
        const int out = first * OUT_ROWS + i / (pixel_vecs * COLUMNS_OUT) + (int)p.out_row;
        if ((unsigned int)out >= (unsigned int)p.out_h || (unsigned int)column >= (unsigned int)p.out_w ||
            channel0 + first_channel >= (int)p.channels)
            continue;
        const int coord[4] = {n, channel0 + first_channel, out, column};
        float acc[VEC_WIDTH] = {};
        #pragma unroll 1
        for (int element = 0; element < VEC_WIDTH; ++element) {
            const float exact = exact_sum(p, smem_filter, n, channel0, first_channel + element, out, column);
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = e == element ? exact : acc[e];
        }
        ColumnOperands exact_operands;
        load_column_operands(p, coord, exact_operands);
        Out result[VEC_WIDTH];
        epilogue(p, coord, exact_operands, acc, result);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) image0[out * p.output_h + column * (int)p.output_w + first_channel + e] = result[e];
    }
}
