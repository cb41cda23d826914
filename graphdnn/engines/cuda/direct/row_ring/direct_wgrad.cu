// Direct filter gradient with few channels per group on CUDA cores: dw[tap] is the sum over pixels of x * dy.
//
// Tile:       a CTA owns CHANNELS_OUT channels of TILES * TW columns, and slides down its work items (image, columns, rows).
// Pipeline:   rings of x and of dy with STAGES steps (direct_row_ring.cuh). Rows of the next work item arrive while the
//             CTA multiplies rows of the current one.
// Threads:    a thread owns V channels of TW columns. It keeps a window of WINDOW rows of dy and the accumulators of
//             all taps in registers.
// Epilogue:   the tiles of a CTA are added in shared memory (direct_wgrad_tiles.cuh). A second launch adds the CTAs'
//             partial sums in a fixed order (direct_wgrad_sum.cu), so results are deterministic.
//
// Required constants (from the generator), besides those of direct_row_ring.cuh: V, CHANNEL_THREADS, GROUP_IN, GROUP_OUT,
// COPY_ELEMS, LOAD_ELEMS, STAGES, DILATION_H, DILATION_W, FLIP, WHOLE_COLUMNS, CTAS_PER_SM as in direct.cu. DY_COPY_ELEMS:
// elements of a copy of dy. REDUCE_WARPS: warps of a CTA of the second launch.

#include "pdl.cuh"
#include "direct_copy.cuh"
#include "direct_row_ring.cuh"
#include "direct_wgrad_item.cuh"
#include "direct_wgrad_items.cuh"
#include "direct_wgrad_exact.cuh"
#include "direct_wgrad_tiles.cuh"

constexpr int CHANNELS_IN = CHANNELS_OUT / GROUP_OUT * GROUP_IN;
constexpr int IV = V <= GROUP_OUT ? GROUP_IN : V / GROUP_OUT * GROUP_IN;  // channels of x that a thread reads
static_assert(CHANNELS_OUT % GROUP_OUT == 0 && (GROUP_OUT % V == 0 || V % GROUP_OUT == 0), "whole groups");

typedef RowRing<ImageElement, IN_ROWS, COLUMNS, CHANNELS_IN, COPY_ELEMS, STAGES> XRing;
typedef RowRing<DyElement, 1, TILES * TW, CHANNELS_OUT, DY_COPY_ELEMS, STAGES> DyRing;

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int channel_block = (int)blockIdx.x;
    // Spare threads repeat the work of the first tile and discard it, so that all threads follow one path.
    const bool is_spare = (int)threadIdx.x >= CHANNEL_THREADS * TILES;
    const int thread_slot = (int)threadIdx.x % (CHANNEL_THREADS * TILES);
    const int tile = thread_slot / CHANNEL_THREADS, local = (thread_slot - tile * CHANNEL_THREADS) * V, local_in = local / GROUP_OUT * GROUP_IN;

    WorkItemLoader<XRing, DyRing, 1, 0> items(memory, channel_block * CHANNELS_IN, channel_block * CHANNELS_OUT);
    const XRing& x_ring = items.x_ring;
    const DyRing& dy_ring = items.dy_ring;

    Accum accum[R][S][GROUP_IN][V];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int c = 0; c < GROUP_IN; ++c)
                #pragma unroll
                for (int v = 0; v < V; ++v) accum[r][s][c][v] = (Accum)0;

    #pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) items.load_step(p, (int)p.channels_in);
    int stage = 0;
    #pragma unroll 1
    for (unsigned int index = blockIdx.y; index < (unsigned int)p.items; index += gridDim.y) {
        const WorkItem<1> item(p, index);
        const int column0 = (item.column_block * TILES + tile) * TW;
        const bool is_whole_tile = WHOLE_COLUMNS || column0 + TW <= item.out_w;
        Accum dy[WINDOW][TW][V];
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k)
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int v = 0; v < V; ++v) dy[k][t][v] = (Accum)0;
        int row = item.first * IN_ROWS + item.phase_h.shift;
        #pragma unroll 1
        for (int step = 0; step < item.iterations; ++step) {
            cp_async_wait<STAGES - 2>();
            __syncthreads();  // the step is visible to all threads, and no thread reads the stage that is filled next
            items.load_step(p, (int)p.channels_in);
            const DyElement* const dy_row = dy_ring.row_ptr(stage, 0, tile * TW, local);
            #pragma unroll
            for (int t = 0; t < TW; ++t) {
                #pragma unroll
                for (int k = 0; k + 1 < WINDOW; ++k)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) dy[k][t][v] = dy[k + 1][t][v];
                const Vec<DyElement, V> vec = load_vec<V>(dy_row + t * CHANNELS_OUT);
                #pragma unroll
                for (int v = 0; v < V; ++v) dy[WINDOW - 1][t][v] = widen<Accum>(vec.data[v]);
            }
            #pragma unroll
            for (int u = 0; u < IN_ROWS; ++u) {
                if (u >= R || (unsigned int)(row + u) >= (unsigned int)item.in_h) continue;
                const ImageElement* const x_row = x_ring.row_ptr(stage, u, tile * STEP_W, local_in);
                Accum x[IW][IV];
                #pragma unroll
                for (int i = 0; i < IW; ++i)
                    #pragma unroll
                    for (int c = 0; c < IV; c += LOAD_ELEMS) {
                        const Vec<ImageElement, LOAD_ELEMS> vec = load_vec<LOAD_ELEMS>(x_row + i * CHANNELS_IN + c);
                        #pragma unroll
                        for (int e = 0; e < LOAD_ELEMS; ++e) x[i][c + e] = widen<Accum>(vec.data[e]);
                    }
                auto multiply_pixel = [&](int k, int t) {
                    const int r = row_tap(u, k);
                    if (r < 0) return;
                    #pragma unroll
                    for (int i = 0; i < IW; ++i) {
                        const int s = column_tap(i, t);
                        if (s < 0) continue;
                        #pragma unroll
                        for (int c = 0; c < GROUP_IN; ++c)
                            #pragma unroll
                            for (int v = 0; v < V; ++v)
                                multiply_add(
                                    accum[r][s][c][v], x[i][V <= GROUP_OUT ? c : v / GROUP_OUT * GROUP_IN + c], dy[k][t][v]
                                );
                    }
                };
                // Pixels outside dy are skipped: 0 * inf would be NaN.
                if (is_whole_tile && step >= WINDOW - 1 && item.first + step < item.last) {
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k)
                        #pragma unroll
                        for (int t = 0; t < TW; ++t) multiply_pixel(k, t);
                } else {
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k) {
                        const int dy_step = step - (WINDOW - 1 - k);
                        if (dy_step < 0 || item.first + dy_step >= item.last) continue;
                        #pragma unroll
                        for (int t = 0; t < TW; ++t)
                            if (WHOLE_COLUMNS || column0 + t < item.out_w) multiply_pixel(k, t);
                    }
                }
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            row += IN_ROWS;
        }
    }
    cp_async_wait<0>();
    pdl_trigger();

    if (reduce_tiles(p, memory, !is_spare, tile, local, channel_block, accum)) recompute_exact<1, CHANNELS_OUT>(p, channel_block);
}
