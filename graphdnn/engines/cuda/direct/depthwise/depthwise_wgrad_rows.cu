// Depthwise filter gradient with unit stride, channels last: dw[tap] is the sum over pixels of x * dy.
//
// Tile:       a thread owns V channels of TW columns and ROWS rows of dy, and the accumulators of all taps. A CTA goes
//             through its tiles with TILES tiles at a time.
// Pipeline:   the loop over rows is fully unrolled, and loads run PREFETCH_ROWS rows ahead. Elements that neighbouring threads
//             also read come from the L1 cache. The main loop uses no shared memory.
// Epilogue:   the CTA's accumulators are one split. A cluster (depthwise_wgrad_cluster.cuh) or a second launch
//             (depthwise_wgrad_workspace.cuh) adds the splits in a fixed order.
// NaN:        pixels outside the image are zeros here, but 0 * inf is NaN. A CTA that finds NaN recomputes its sums.
//
// Required constants (from the generator): R, S, FLIP: the filter. V, TW, ROWS, CHANNEL_THREADS, TILES, THREADS, PREFETCH_ROWS:
// see above; CHANNEL_THREADS is the threads along the channels. PITCH, DY_PITCH: elements between pixels of x and of dy.
// INTERIOR_ROW_BEGIN, INTERIOR_ROW_END, INTERIOR_BEGIN, INTERIOR_END: rows and columns of x inside the image in every tile. WHOLE_COLUMNS,
// WHOLE_ROWS, WHOLE_CHANNELS: tiles divide the columns, rows, channels. CLUSTER: splits, or REDUCE_WARPS: warps of a CTA of the
// second launch. CTAS_PER_SM.
//
// Variants (from the generator): SPLITS_IN_CLUSTER: 1: the CTAs of a cluster add their sums; 0: another launch does.

#include "pdl.cuh"
#include "whole_lines.cuh"
#include "predicated_load.cuh"
#if SPLITS_IN_CLUSTER
#include "depthwise_wgrad_cluster.cuh"
#else
#include "depthwise_wgrad_workspace.cuh"
#endif

constexpr int CHANNELS_OUT = CHANNEL_THREADS * V;      // channels of a CTA
constexpr int SUMS = R * S * CHANNELS_OUT;   // sums of a CTA: [r][s][channel]
constexpr int IW = TW + S - 1;               // columns of x that a tile reads
constexpr int IH = ROWS + R - 1;

// The origins of a tile in dy and in x.
struct Tile {
    int n, row, column, x_row, x_column;

    __device__ __forceinline__ Tile(const Params& p, int tile_index) {
        const int by_rows = tile_index / (int)p.tiles_across;
        column = (tile_index - by_rows * (int)p.tiles_across) * TW;
        n = by_rows / (int)p.tiles_down;
        row = (by_rows - n * (int)p.tiles_down) * ROWS;
        x_row = row + (int)p.in_row, x_column = column + (int)p.in_column;
    }
};

// Computes a CTA's sum for one filter element without padding.
__device__ __forceinline__ Accum exact_sum(const Params& p, int split, int channel, int r, int s) {
    Accum accum = (Accum)0;
    #pragma unroll 1
    for (int tile_index = split * TILES; tile_index < (int)p.tiles; tile_index += (int)p.splits * TILES)
        #pragma unroll 1
        for (int i = 0; i < TILES * ROWS * TW; ++i) {
            const int current_tile = tile_index + i / (ROWS * TW), row = i / TW % ROWS, column = i % TW;
            if (current_tile >= (int)p.tiles) break;
            const Tile tile(p, current_tile);
            const int h = tile.x_row + row + r, w = tile.x_column + column + s;
            if (tile.row + row >= (int)p.out_h || tile.column + column >= (int)p.out_w ||
                (unsigned int)h >= (unsigned int)p.in_h || (unsigned int)w >= (unsigned int)p.in_w)
                continue;
            const long long x_offset = tile.n * p.image_n + h * p.image_h + w * (long long)PITCH;
            const long long dy_offset =
                tile.n * p.dy_n + (tile.row + row) * p.dy_h + (tile.column + column) * (long long)DY_PITCH;
            multiply_add(
                accum, widen<Accum>(p.image[x_offset + channel]), widen<Accum>(p.dy[dy_offset + channel])
            );
        }
    return accum;
}

extern "C" __global__ void SPLIT_CLUSTER __launch_bounds__(THREADS, CTAS_PER_SM)
depthwise_wgrad_rows(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int split = split_index(p), channel_block = channel_block_index(p);
    // Spare threads repeat the work of the first tile and discard it, so that all threads follow one path.
    const int slot_index = (int)threadIdx.x % (CHANNEL_THREADS * TILES), thread_tile = slot_index / CHANNEL_THREADS;
    const int local = (slot_index - thread_tile * CHANNEL_THREADS) * V, channel = channel_block * CHANNELS_OUT + local;
    const bool owns_tile = (int)threadIdx.x < CHANNEL_THREADS * TILES, is_channel = channel < (int)p.channels_out;
    arrive_splits();
    pdl_wait();
    // Never true. The compiler may hoist read-only loads above pdl_wait, but not above a point where threads may exit.
    if (p.zero != 0) return;

    Accum accum[R][S][V];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int v = 0; v < V; ++v) accum[r][s][v] = (Accum)0;

    #pragma unroll 1
    for (int tile_index = split * TILES + thread_tile; tile_index < (int)p.tiles; tile_index += (int)p.splits * TILES) {
        const Tile tile(p, tile_index);
        unsigned int inside = 0, dy_inside = 0;
        #pragma unroll
        for (int c = 0; c < IW; ++c)
            if ((unsigned int)(tile.x_column + c) < (unsigned int)p.in_w) inside |= 1u << c;
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            if (tile.column + t < (int)p.out_w) dy_inside |= 1u << t;
        const ImageElement* from = p.image + tile.n * p.image_n + tile.x_row * p.image_h +
            tile.x_column * (long long)PITCH + channel;
        const DyElement* dy_source = p.dy + tile.n * p.dy_n + tile.row * p.dy_h + tile.column * (long long)DY_PITCH + channel;

        ImageElement x_rows[PREFETCH_ROWS + 1][IW][V];  // rows in flight
        DyElement dy_rows[PREFETCH_ROWS + 1][TW][V];
        auto load_row = [&](int i) {
            const bool is_row = (WHOLE_CHANNELS || is_channel) &&
                ((INTERIOR_ROW_BEGIN <= i && i < INTERIOR_ROW_END) || (unsigned int)(tile.x_row + i) < (unsigned int)p.in_h);
            #pragma unroll
            for (int c = 0; c < IW; ++c) {
                const bool is_column = (INTERIOR_BEGIN <= c && c < INTERIOR_END) || (inside >> c & 1u) != 0;
                load_if<V>(is_row && is_column, from + c * PITCH, x_rows[i % (PREFETCH_ROWS + 1)][c]);
            }
            from += p.image_h;
            if (i >= ROWS) return;
            const bool is_dy_row = (WHOLE_CHANNELS || is_channel) && (WHOLE_ROWS || tile.row + i < (int)p.out_h);
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                load_if<V>(
                    is_dy_row && (WHOLE_COLUMNS || (dy_inside >> t & 1u) != 0), dy_source + t * DY_PITCH, dy_rows[i % (PREFETCH_ROWS + 1)][t]
                );
            dy_source += p.dy_h;
        };
        #pragma unroll
        for (int i = 0; i < PREFETCH_ROWS && i < IH; ++i) load_row(i);

        Accum dy[R][TW][V];
        #pragma unroll
        for (int i = 0; i < IH; ++i) {
            if (i + PREFETCH_ROWS < IH) load_row(i + PREFETCH_ROWS);
            if (i < ROWS)
                #pragma unroll
                for (int t = 0; t < TW; ++t)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) dy[i % R][t][v] = widen<Accum>(dy_rows[i % (PREFETCH_ROWS + 1)][t][v]);
            Accum x[IW][V];
            #pragma unroll
            for (int c = 0; c < IW; ++c)
                #pragma unroll
                for (int v = 0; v < V; ++v) x[c][v] = widen<Accum>(x_rows[i % (PREFETCH_ROWS + 1)][c][v]);
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int r = 0; r < R; ++r) {
                    if (i - r < 0 || i - r >= ROWS) continue;
                    #pragma unroll
                    for (int s = 0; s < S; ++s)
                        #pragma unroll
                        for (int v = 0; v < V; ++v) multiply_add(accum[r][s][v], x[t + s][v], dy[(i - r) % R][t][v]);
                }
        }
    }

    pdl_trigger();
    Accum* const shared = (Accum*)memory;  // [tile][r][s][channel]
    bool has_nan = false;
    if (owns_tile)
        #pragma unroll
        for (int r = 0; r < R; ++r)
            #pragma unroll
            for (int s = 0; s < S; ++s)
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                    has_nan |= accum[r][s][v] != accum[r][s][v];
                    shared[thread_tile * SUMS + (r * S + s) * CHANNELS_OUT + local + v] = accum[r][s][v];
                }
    if (__syncthreads_or(has_nan)) {
        #pragma unroll 1
        for (int i = threadIdx.x; i < SUMS; i += THREADS) {
            const int element_channel = channel_block * CHANNELS_OUT + i % CHANNELS_OUT, tap = i / CHANNELS_OUT;
            #pragma unroll 1
            for (int j = 0; j < TILES; ++j)
                shared[j * SUMS + i] = j == 0 && element_channel < (int)p.channels_out ? exact_sum(p, split, element_channel, tap / S, tap % S) : (Accum)0;
        }
        __syncthreads();
    }
    store_split(p, shared, split, channel_block);
}
