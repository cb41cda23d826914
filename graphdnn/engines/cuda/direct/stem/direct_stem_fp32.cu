// Forward convolution of an image with few channels (1 to 4) in fp32 on CUDA cores, the first layer of a network.
//
// Tile:       TILE_ROWS whole output rows. A warp owns 4 * TM neighbouring pixels of a row and CTA_CHANNELS = 8 * TN channels.
// Threads:    a thread owns every fourth of these pixels, and 4 contiguous channels of every 32.
// Pipeline:   image rows pass through shared memory as in direct_stem.cu: a window of a filter row is S * C contiguous
//             elements. Filters lie in shared memory as [element of the window][channel]. CTAs are persistent.
// Vectors:    where the windows of all pixels have the same alignment, a load takes two elements of a window.
//
// Required constants (from the generator), besides those of direct_stem_rows.cuh: TM, TN: see above. FIRST_PAIR: elements of a
// window before the first pair. VEC_WIDTH: channels of an epilogue call. CTAS_PER_SM: CTAs that fit on an SM.

#include "direct_copy.cuh"
#include "direct_stem_rows.cuh"

constexpr int CTA_CHANNELS = 8 * TN;            // channels of a CTA
// Elements between window elements; threads that fill the table write to different banks.
constexpr int FILTER_PITCH = CTA_CHANNELS + 4;
constexpr bool IN_PAIRS = STRIDE_W * C % 2 == 0;
// Window elements before the first pair, and up to the end of the last pair.
constexpr int FIRST = IN_PAIRS ? FIRST_PAIR : 0, LAST = IN_PAIRS ? FIRST_PAIR + (WINDOW - FIRST_PAIR) / 2 * 2 : 0;
constexpr int UNROLL = WINDOW <= 24 ? WINDOW : 4;
static_assert(TN % 4 == 0 && 4 % VEC_WIDTH == 0, "a thread has groups of four contiguous channels");

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_stem_fp32(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const rows = (Element*)memory;
    float* const filter_table = rows + STAGES * STAGE;
    // Neighbouring lanes read the same channels, so a half warp's 16-byte loads take one pass over the banks.
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int j = lane / 2 % 8, m = lane % 2 + lane / 16 * 2;
    const int block_channel = (int)blockIdx.y * CTA_CHANNELS;

    clear_margins(p, rows);
    unsigned int tile = blockIdx.x;
    if (tile < (unsigned int)p.tiles) load_image_rows(p, rows, tile);
    cp_async_commit();
    #pragma unroll 4
    for (int i = threadIdx.x; i < FILTER_SIZE * CTA_CHANNELS; i += THREADS) {
        const int k = i / FILTER_SIZE, at = i - k * FILTER_SIZE;
        const long long offset = (long long)(block_channel + k) * FILTER_SIZE + filter_offset(p, at / WINDOW, at % WINDOW);
        filter_table[at * FILTER_PITCH + k] = block_channel + k < (int)p.channels_out ? p.filter[offset] : 0.0f;
    }

    int slot = 0;
    for (; tile < (unsigned int)p.tiles; tile += gridDim.x) {
        if (tile + gridDim.x < (unsigned int)p.tiles) load_image_rows(p, rows + (slot ^ 1) * STAGE, tile + gridDim.x);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        const int slice_out = (int)(tile / (unsigned int)p.row_tiles);
        const int out0 = (int)(tile % (unsigned int)p.row_tiles) * TILE_ROWS;
        #pragma unroll 1
        for (int work_item = warp; work_item < TILE_ROWS * (int)p.column_tiles; work_item += THREADS / 32) {
            const int row = work_item / (int)p.column_tiles, column = work_item - row * (int)p.column_tiles;
            const int q0 = column * (4 * TM) + m;
            const float* const first = rows + slot * STAGE + row * STRIDE_H * PITCH + (int)p.window + q0 * (STRIDE_W * C);
            const float *x = first, *w = filter_table + 4 * j;
            float accum[TM][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int v = 0; v < TN; ++v) accum[i][v] = 0.0f;
            // Adds the products of COUNT window elements, starting at `at`.
            auto multiply_window = [&](auto& numbers, int at) {
                constexpr int COUNT = sizeof(numbers[0]) / sizeof(float);
                #pragma unroll
                for (int i = 0; i < TM; ++i) numbers[i] = load_vec<COUNT>(x + i * (4 * STRIDE_W * C) + at);
                #pragma unroll
                for (int e = 0; e < COUNT; ++e) {
                    Vec<float, 4> weights[TN / 4];
                    #pragma unroll
                    for (int v = 0; v < TN / 4; ++v) weights[v] = load_vec<4>(w + (at + e) * FILTER_PITCH + 32 * v);
                    #pragma unroll
                    for (int i = 0; i < TM; ++i)
                        #pragma unroll
                        for (int v = 0; v < TN; ++v)
                            accum[i][v] = fmaf(numbers[i].data[e], weights[v / 4].data[v % 4], accum[i][v]);
                }
            };
            #pragma unroll 1
            for (int r = 0; r < FILTER_ROWS; ++r, w += WINDOW * FILTER_PITCH) {
                x = first + row_at(r);
                Vec<float, 1> single[TM];
                Vec<float, 2> pair[TM];
                if constexpr (FIRST > 0) multiply_window(single, 0);
                #pragma unroll UNROLL
                for (int at = FIRST; at < LAST; at += 2) multiply_window(pair, at);
                #pragma unroll UNROLL
                for (int at = LAST; at < WINDOW; ++at) multiply_window(single, at);
            }
            if (out0 + row >= (int)p.out_h) continue;
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                if (q0 + 4 * i >= (int)p.out_w) continue;
                #pragma unroll
                for (int v = 0; v < TN; v += VEC_WIDTH) {
                    const int channel = block_channel + v / 4 * 32 + 4 * j + v % 4;
                    const OutputCoord out = output_coord(p, slice_out, channel, out0 + row, q0 + 4 * i);
                    if (channel >= (int)p.channels_out) continue;
                    float acc[VEC_WIDTH];
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = accum[i][v + e];
                    epilogue(p, out.coord, acc);
                }
            }
        }
        __syncthreads();
        slot ^= 1;
    }
    cp_async_wait<0>();
}
