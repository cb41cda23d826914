// Direct filter gradient with few channels per group on tensor cores (mma.sync): dw[tap] is the sum over pixels of x * dy.
//
// Tile:       a CTA owns CHANNELS channels of TILES * 16 columns, and slides down its work items as direct_wgrad.cu does.
// MMA:        a warp owns 8 channels of 16 columns. K is 16 pixels of a row, N is channels of x. M is channels of dy:
//             rows 0 to 7 are the pixels themselves, rows 8 to 15 their left neighbours, which give the tap STRIDE_W
//             further right. Only the results within a group are used.
// Pipeline:   rings of x and of dy with STAGES stages, each STEPS_PER_STAGE steps.
// Epilogue:   the tiles of a CTA are added in shared memory, and a second launch adds the CTAs (direct_wgrad_sum.cu).
// NaN:        pixels outside the image are zeros here; see direct_wgrad_exact.cuh.
//
// Required constants (from the generator), besides those of direct_row_ring.cuh: WARPS: warps along the channels.
// STEPS_PER_STAGE, STAGES: see above. GROUP_IN, GROUP_OUT: channels of a group, which are equal. X_COPY_COLUMNS, DY_COPY_COLUMNS: columns
// of x and of dy that copies fill. REDUCE_WARPS: warps of a CTA of the second launch. CTAS_PER_SM: CTAs that fit on an SM.

#include "pdl.cuh"
#include "direct_copy.cuh"
#include "direct_mma.cuh"
#include "direct_row_ring.cuh"
#include "direct_wgrad_item.cuh"
#include "direct_wgrad_items.cuh"
#include "direct_wgrad_exact.cuh"

constexpr int GROUP_CHANNELS = GROUP_OUT;     // channels of a group in x and in dy
constexpr int CHANNELS = 8 * WARPS;  // channels of a CTA
constexpr int PIXEL_STRIDE = CHANNELS + (WARPS % 2 ? 0 : 8);  // neighbouring pixels start in different banks
constexpr int SHIFTS = S / (2 * STRIDE_W) * STRIDE_W + (S % (2 * STRIDE_W) < STRIDE_W ? S % (2 * STRIDE_W) : STRIDE_W);
constexpr int LOADS = (SHIFTS + 1) / 2;

// The first tap of a shift. One MMA computes this tap and the tap STRIDE_W further right.
constexpr __host__ __device__ int shift_tap(int i) { return i / STRIDE_W * (2 * STRIDE_W) + i % STRIDE_W; }

typedef RowRing<ImageElement, STEPS_PER_STAGE * IN_ROWS, COLUMNS, CHANNELS, 8, STAGES, PIXEL_STRIDE, X_COPY_COLUMNS> XRing;
// Including one column to the left.
typedef RowRing<ImageElement, STEPS_PER_STAGE, TILES * TW + 1, CHANNELS, 8, STAGES, PIXEL_STRIDE, DY_COPY_COLUMNS> DyRing;
static_assert(sizeof(ImageElement) == 2 && TW == 16, "K of an MMA is 16 pixels");

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_sliding_mma_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int channel_block = (int)blockIdx.x;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warp = (int)threadIdx.x / 32 % WARPS, tile = (int)threadIdx.x / (32 * WARPS);

    WorkItemLoader<XRing, DyRing, STEPS_PER_STAGE, 1> items(memory, channel_block * CHANNELS, channel_block * CHANNELS);
    XRing& x_ring = items.x_ring;
    DyRing& dy_ring = items.dy_ring;
    x_ring.clear_margin();
    dy_ring.clear_margin();

    float accum[R][SHIFTS][4];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int i = 0; i < SHIFTS; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum[r][i][e] = 0.0f;

    // The matrix rows whose addresses this lane passes to ldmatrix: pixels of dy and their left neighbours, two shifts of x.
    const int matrix = lane / 8, matrix_row = lane % 8;
    const int dy_column = tile * TW + matrix / 2 * 8 + matrix_row + 1 - matrix % 2;
    const int x_column = (tile * TW + matrix % 2 * 8 + matrix_row) * STRIDE_W;
    int x_shift[LOADS];
    #pragma unroll
    for (int i = 0; i < LOADS; ++i)
        x_shift[i] = (matrix / 2 && 2 * i + 1 < SHIFTS ? shift_tap(2 * i + 1) : shift_tap(2 * i)) * PIXEL_STRIDE;

    #pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) items.load_step(p, (int)p.channels_out);
    int stage = 0;
    #pragma unroll 1
    for (unsigned int index = blockIdx.y; index < (unsigned int)p.items; index += gridDim.y) {
        const WorkItem<STEPS_PER_STAGE> item(p, index);
        unsigned int dy[WINDOW][4];
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k)
            #pragma unroll
            for (int e = 0; e < 4; ++e) dy[k][e] = 0;
        #pragma unroll 1
        for (int iteration = 0; iteration < item.iterations; ++iteration) {
            cp_async_wait<STAGES - 2>();
            __syncthreads();  // the stage is visible to all threads, and no thread reads the stage that is filled next
            items.load_step(p, (int)p.channels_out);
            const ImageElement* dy_rows = dy_ring.row_ptr(stage, 0, dy_column, 8 * warp);
            const ImageElement* x_rows = x_ring.row_ptr(stage, 0, x_column, 8 * warp);
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            #pragma unroll
            for (int step = 0; step < STEPS_PER_STAGE; ++step) {
                #pragma unroll
                for (int k = 0; k + 1 < WINDOW; ++k)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) dy[k][e] = dy[k + 1][e];
                ldmatrix_x4_trans(dy[WINDOW - 1], dy_rows + step * ((TILES * TW + 1) * PIXEL_STRIDE));
                #pragma unroll
                for (int u = 0; u < IN_ROWS; ++u) {
                    if (u >= R) continue;
                    unsigned int x[LOADS][4];
                    #pragma unroll
                    for (int i = 0; i < LOADS; ++i)
                        ldmatrix_x4_trans(x[i], x_rows + (step * IN_ROWS + u) * (COLUMNS * PIXEL_STRIDE) + x_shift[i]);
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k) {
                        const int r = row_tap(u, k);
                        if (r < 0) continue;
                        #pragma unroll
                        for (int i = 0; i < SHIFTS; ++i)
                            mma_sync<ImageElement, true>(
                                accum[r][i], dy[k][0], dy[k][1], dy[k][2], dy[k][3], x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]
                            );
                    }
                }
            }
        }
    }
    cp_async_wait<0>();
    pdl_trigger();

    // Adds the tiles of the CTA, one row of taps at a time. A lane has channel g of dy with channels 2j and 2j + 1 of x.
    float* const tile_sums = (float*)memory;
    constexpr int ROW_SUMS = S * GROUP_CHANNELS * CHANNELS;
    bool has_nan = false;
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < SHIFTS; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int c = 2 * j + e % 2, s = shift_tap(i) + e / 2 * STRIDE_W;
                if (s >= S || c / GROUP_CHANNELS != g / GROUP_CHANNELS) continue;
                has_nan |= accum[r][i][e] != accum[r][i][e];
                tile_sums[tile * ROW_SUMS + (s * GROUP_CHANNELS + c % GROUP_CHANNELS) * CHANNELS + 8 * warp + g] = accum[r][i][e];
            }
        __syncthreads();
        for (int i = threadIdx.x; i < ROW_SUMS; i += THREADS) {
            float total = tile_sums[i];
            #pragma unroll
            for (int t = 1; t < TILES; ++t) total += tile_sums[t * ROW_SUMS + i];
            const long long tap = (long long)(blockIdx.y * R + r) * (S * GROUP_CHANNELS) + i / CHANNELS;
            p.partial[tap * p.padded_channels + channel_block * CHANNELS + i % CHANNELS] = total;
        }
    }
    if (__syncthreads_or(has_nan)) recompute_exact<STEPS_PER_STAGE, CHANNELS>(p, channel_block);
}
