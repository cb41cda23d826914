// The thread tile of the depthwise kernels that keep rows in registers: unit stride, channels last, fprop and dgrad. A
// thread owns V channels of TW columns. Elements that neighbouring threads also read come from the L1 cache.
//
// Required constants: R, S, DILATION_H, DILATION_W, DGRAD, FLIP: the filter and the direction. V, TW, THREADS: see above.
// FILTER_R, FILTER_S, FILTER_COPY_ELEMS: strides of a filter and elements of a load. VEC_WIDTH: channels of an epilogue call.
// WHOLE_COLUMNS: tiles divide the columns. PITCH: elements between pixels. INTERIOR_BEGIN, INTERIOR_END: columns inside the image in
// every tile.

#include "fast_division.cuh"
#include "dilation_phase.cuh"

constexpr int IW = TW + S - 1;            // image columns that a thread reads
constexpr bool BACKWARD = DGRAD != FLIP;  // the filter is flipped
static_assert(V % VEC_WIDTH == 0 && V * R * S % FILTER_COPY_ELEMS == 0, "whole vectors");

// The thread's output and image origin, as indices within a dilation phase. Threads enumerate channel lanes, then column
// tiles, blocks of `rows` rows, dilation phases, and images.
struct ThreadTile {
    int n, channel, row0, column0, first_row, first_column;
    DilationPhase phase_h, phase_w;
    int in_h, in_w, out_h, out_w;

    __device__ __forceinline__ ThreadTile(const Params& p, int rows) {
        const unsigned int thread = blockIdx.x * THREADS + threadIdx.x;
        const unsigned int by_tile = quotient(thread, p.channel_threads, p.channel_threads_magic);
        channel = (int)(thread - by_tile * (unsigned int)p.channel_threads) * V;
        const unsigned int by_rows = quotient(by_tile, p.tiles, p.tiles_magic);
        column0 = (int)(by_tile - by_rows * (unsigned int)p.tiles) * TW;
        unsigned int rem = quotient(by_rows, p.row_blocks, p.row_blocks_magic);
        row0 = (int)(by_rows - rem * (unsigned int)p.row_blocks) * rows;
        phase_h = dilation_phase((int)(rem % DILATION_H), (int)p.in_row, DILATION_H);
        rem /= DILATION_H;
        phase_w = dilation_phase((int)(rem % DILATION_W), (int)p.in_column, DILATION_W);
        n = (int)(rem / DILATION_W);
        in_h = phase_extent((int)p.in_h, phase_h.image_phase, DILATION_H), in_w = phase_extent((int)p.in_w, phase_w.image_phase, DILATION_W);
        out_h = phase_extent((int)p.out_h, phase_h.out_phase, DILATION_H), out_w = phase_extent((int)p.out_w, phase_w.out_phase, DILATION_W);
        first_row = row0 + phase_h.shift - (DGRAD ? R - 1 : 0);
        first_column = column0 + phase_w.shift - (DGRAD ? S - 1 : 0);
    }

    // False for spare threads of the last CTA.
    __device__ __forceinline__ bool is_valid(const Params& p) const { return n < (int)p.images; }

    // Bit c: image column c lies inside the image.
    __device__ __forceinline__ unsigned int inside() const {
        unsigned int mask = 0;
        #pragma unroll
        for (int c = 0; c < IW; ++c)
            if ((unsigned int)(first_column + c) < (unsigned int)in_w) mask |= 1u << c;
        return mask;
    }

    // Output coordinates for the epilogue: channel `v` and column `t` of the thread, `row` of the phase.
    __device__ __forceinline__ void coord(int v, int row, int t, int (&result)[4]) const {
        result[0] = n, result[1] = channel + v, result[2] = row * DILATION_H + phase_h.out_phase, result[3] = (column0 + t) * DILATION_W + phase_w.out_phase;
    }
};

// Loads the filters of the thread's channels.
__device__ __forceinline__ void load_filters(const Params& p, int channel, Accum (&weight)[R][S][V]) {
    const Filter* const source = p.filter + channel * (R * S);
    Vec<Filter, FILTER_COPY_ELEMS> vecs[V * R * S / FILTER_COPY_ELEMS];
    #pragma unroll
    for (int i = 0; i < V * R * S / FILTER_COPY_ELEMS; ++i) vecs[i] = load_vec_read_only<FILTER_COPY_ELEMS>(source + i * FILTER_COPY_ELEMS);
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int v = 0; v < V; ++v) {
                const int at = v * (R * S) + (BACKWARD ? R - 1 - r : r) * FILTER_R + (BACKWARD ? S - 1 - s : s) * FILTER_S;
                weight[r][s][v] = widen<Accum>(vecs[at / FILTER_COPY_ELEMS].data[at % FILTER_COPY_ELEMS]);
            }
}

// Loads the epilogue's column operands before the main loop.
__device__ __forceinline__ void load_operands(const Params& p, const ThreadTile& tile, ColumnOperands (&column_operands)[V / VEC_WIDTH]) {
    #pragma unroll
    for (int v = 0; v < V; v += VEC_WIDTH) {
        const int coord[4] = {tile.n, tile.channel + v, 0, tile.column0 * DILATION_W + tile.phase_w.out_phase};
        load_column_operands(p, coord, column_operands[v / VEC_WIDTH]);
    }
}

// Stores a finished row through the epilogue.
__device__ __forceinline__ void store_row(
    const Params& p, const ThreadTile& tile, const ColumnOperands (&column_operands)[V / VEC_WIDTH], int row, const Accum (&accum)[TW][V]
) {
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
        if (!WHOLE_COLUMNS && tile.column0 + t >= tile.out_w) continue;
        #pragma unroll
        for (int v = 0; v < V; v += VEC_WIDTH) {
            int coord[4];
            tile.coord(v, row, t, coord);
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = accum[t][v + e];
            epilogue(p, coord, column_operands[v / VEC_WIDTH], acc);
        }
    }
}
