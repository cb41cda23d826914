// Forward convolution of an image with few channels (1 to 4), the first layer of a network, on tensor cores (mma.sync).
//
// Tile:       TILE_ROWS whole output rows. A warp owns 16 pixels and 8 * NT output channels at a time.
// MMA:        with channels last, the window of one filter row is S * C contiguous elements, so image rows in shared
//             memory are A operands without im2col: the window of pixel q starts at element q * STRIDE_W * C. K runs over the
//             windows of T * R filter rows, each padded to FILTER_ROW_K elements, a multiple of 8. Where a window starts at an
//             odd element, K includes the element before it (LEADING_ELEMENT), so that pairs are aligned. Elements outside the
//             window are cleared before the MMA: their weight is 0, but 0 * inf is NaN.
// Parity:     where windows of neighbouring pixels start at odd distances (PIXEL_PARITIES is 2), a warp takes the even pixels or
//             the odd pixels, and only one of the two needs the element before the window.
// Pipeline:   CTAs are persistent and keep their filters in registers. The rows of the next tile arrive by cp.async.
// Epilogue:   output channels are permuted over N so that a lane ends with 2 * NT contiguous channels of its pixel.
//
// Required constants (from the generator), besides those of direct_stem_rows.cuh: NT: MMA tiles along the channels of a
// warp. CHANNEL_SPLITS: warps along the channels. LEADING_ELEMENT: see above. FILTER_IS_PACKED: filters lie as [r][s][c].
// FILTER_COPY_ELEMS: elements of a copy of filters. STAGES: 2. VEC_WIDTH: channels of an epilogue call. CTAS_PER_SM: CTAs that
// fit on an SM.

#include "direct_copy.cuh"
#include "direct_mma.cuh"
#include "direct_stem_rows.cuh"
#include "direct_stem_windows.cuh"

constexpr int THREAD_CHANNELS = 2 * NT; // channels that a lane accumulates
constexpr int CHANNELS = 8 * NT; // channels of a warp
static_assert(THREADS / 32 / CHANNEL_SPLITS >= PIXEL_PARITIES, "warps for even and for odd pixels");

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_stem(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const rows = (Element*)memory;
    Filter* const smem_filter = (Filter*)(rows + STAGES * STAGE);

    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int g = lane / 4, j = lane % 4;
    // The warp's channels and pixels.
    const int channel_split = warp % CHANNEL_SPLITS, first = warp / CHANNEL_SPLITS / PIXEL_PARITIES, parity = warp / CHANNEL_SPLITS % PIXEL_PARITIES;
    const int lead = parity ? 1 - LEADING_ELEMENT : LEADING_ELEMENT;
    const int block_channel = (int)blockIdx.y * CHANNEL_SPLITS * CHANNELS;

    copy_filters<CHANNEL_SPLITS * CHANNELS, THREADS>(p, smem_filter, block_channel);
    clear_margins(p, rows);
    cp_async_commit();
    unsigned int tile = blockIdx.x;
    if (tile < (unsigned int)p.tiles) load_image_rows(p, rows, tile);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();

    unsigned int weight[K_SLICES][NT];
    #pragma unroll
    for (int slice = 0; slice < K_SLICES; ++slice)
        #pragma unroll
        for (int i = 0; i < NT; ++i) {
            const int k = channel_split * CHANNELS + THREAD_CHANNELS * (g / 2) + 2 * i + g % 2;
            const int r = slice / (FILTER_ROW_K / 8), at = slice % (FILTER_ROW_K / 8) * 8 + 2 * j - lead;
            weight[slice][i] = weight_at(p, smem_filter, k, r, at) | (unsigned int)weight_at(p, smem_filter, k, r, at + 1) << 16;
        }
    // Masks that clear elements outside the window from a lane's first and last pair.
    const unsigned int first_mask = lead && j == 0 ? 0xffff0000u : 0xffffffffu;
    const int last_pair = FILTER_ROW_K - 8 + 2 * j - lead;
    const unsigned int last_mask = (last_pair < WINDOW ? 0xffffu : 0u) | (last_pair + 1 < WINDOW ? 0xffff0000u : 0u);

    int slot = 0;
    for (; tile < (unsigned int)p.tiles; tile += gridDim.x) {
        if (tile + gridDim.x < (unsigned int)p.tiles) load_image_rows(p, rows + (slot ^ 1) * STAGE, tile + gridDim.x);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        const int slice_out = (int)(tile / (unsigned int)p.row_tiles);
        const int out0 = (int)(tile % (unsigned int)p.row_tiles) * TILE_ROWS;
        int row = 0, column = first;
        #pragma unroll 1
        for (;; column += THREADS / 32 / CHANNEL_SPLITS / PIXEL_PARITIES) {
            while (column >= (int)p.column_tiles) column -= (int)p.column_tiles, ++row;
            if (row >= TILE_ROWS) break;
            const int q = (column * 16 + g) * PIXEL_PARITIES + parity;
            const Element* const pixel_window = rows + slot * STAGE + row * STRIDE_H * PITCH + (int)p.window + (LEADING_ELEMENT - lead) +
                                        q * (STRIDE_W * C) + 2 * j;
            float accum[NT][4];
            #pragma unroll
            for (int i = 0; i < NT; ++i)
                #pragma unroll
                for (int e = 0; e < 4; ++e) accum[i][e] = 0.0f;
            #pragma unroll
            for (int slice = 0; slice < K_SLICES; slice += 2) {
                unsigned int a[4] = {0, 0, 0, 0};
                #pragma unroll
                for (int d = 0; d < 2; ++d) {
                    if (slice + d >= K_SLICES) continue;
                    const int r = (slice + d) / (FILTER_ROW_K / 8), at = (slice + d) % (FILTER_ROW_K / 8);
                    const Element* const window = pixel_window + row_at(r) + at * 8;
                    unsigned int upper = pair_at(window), lower = pair_at(window + 8 * A_ROW_STRIDE);
                    if (HAS_LEADING_ELEMENT && at == 0) upper &= first_mask, lower &= first_mask;
                    if ((FILTER_ROW_K != WINDOW + LEADING_ELEMENT || PIXEL_PARITIES == 2) && at == FILTER_ROW_K / 8 - 1) upper &= last_mask, lower &= last_mask;
                    a[2 * d] = upper;
                    a[2 * d + 1] = lower;
                }
                #pragma unroll
                for (int i = 0; i < NT; ++i)
                    if (slice + 1 < K_SLICES)
                        mma_sync<Element, true>(
                            accum[i], a[0], a[1], a[2], a[3], weight[slice][i], weight[slice + 1 < K_SLICES ? slice + 1 : 0][i]
                        );
                    else
                        mma_sync<Element, false>(accum[i], a[0], a[1], 0, 0, weight[slice][i], 0);
            }
            if (out0 + row >= (int)p.out_h) continue;
            int channel = block_channel + channel_split * CHANNELS + THREAD_CHANNELS * j;
#ifdef __CUDA_ARCH__
            // Hides the value from the compiler, which would otherwise load epilogue operands early, into registers that
            // filters need.
            asm volatile("" : "+r"(channel));
#endif
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (q + 8 * PIXEL_PARITIES * half >= (int)p.out_w) continue;
                #pragma unroll
                for (int v = 0; v < THREAD_CHANNELS; v += VEC_WIDTH) {
                    const OutputCoord out = output_coord(p, slice_out, channel + v, out0 + row, q + 8 * PIXEL_PARITIES * half);
                    if (out.coord[1] >= (int)p.channels_out) continue;
                    Accum acc[VEC_WIDTH];
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = (Accum)accum[(v + e) / 2][2 * half + (v + e) % 2];
                    epilogue(p, out.coord, acc);
                }
            }
        }
        __syncthreads();
        slot ^= 1;
    }
    cp_async_wait<0>();
}
