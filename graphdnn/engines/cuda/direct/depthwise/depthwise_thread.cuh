// A thread of the depthwise kernels without shared memory, unit stride, channels last, fprop and dgrad: it owns V channels
// of TW columns, and what neighbouring threads read as well comes from the cache of their multiprocessor.

constexpr int IW = TW + S - 1;            // gathered columns of a thread
constexpr bool BACKWARD = DGRAD != FLIP;  // the filter meets the image turned over
static_assert(V % WIDTH == 0 && V * R * S % FILTER_CHUNK == 0, "whole packs");

// Where its results begin and what it gathers for them, in places of its part of a dilated image. Threads count lanes,
// then tiles of columns, blocks of `rows` rows, parts of a dilated image, and images.
struct Place {
    int n, channel, row0, column0, first_row, first_column;
    Remainder down, across;
    int in_h, in_w, out_h, out_w;

    __device__ __forceinline__ Place(const Params& p, int rows) {
        const unsigned int thread = blockIdx.x * THREADS + threadIdx.x;
        const unsigned int by_tile = quotient(thread, p.lanes, p.lanes_magic);
        channel = (int)(thread - by_tile * (unsigned int)p.lanes) * V;
        const unsigned int by_rows = quotient(by_tile, p.tiles, p.tiles_magic);
        column0 = (int)(by_tile - by_rows * (unsigned int)p.tiles) * TW;
        unsigned int rest = quotient(by_rows, p.row_blocks, p.row_blocks_magic);
        row0 = (int)(by_rows - rest * (unsigned int)p.row_blocks) * rows;
        down = remainder_of((int)(rest % DILATION_H), (int)p.in_row, DILATION_H);
        rest /= DILATION_H;
        across = remainder_of((int)(rest % DILATION_W), (int)p.in_column, DILATION_W);
        n = (int)(rest / DILATION_W);
        in_h = places((int)p.in_h, down.met, DILATION_H), in_w = places((int)p.in_w, across.met, DILATION_W);
        out_h = places((int)p.out_h, down.own, DILATION_H), out_w = places((int)p.out_w, across.own, DILATION_W);
        first_row = row0 + down.shift - (DGRAD ? R - 1 : 0);
        first_column = column0 + across.shift - (DGRAD ? S - 1 : 0);
    }

    // The last block may have threads too many.
    __device__ __forceinline__ bool is_there(const Params& p) const { return n < (int)p.images; }

    // Which of the gathered columns lie in the image, a bit for each.
    __device__ __forceinline__ unsigned int inside() const {
        unsigned int found = 0;
        #pragma unroll
        for (int c = 0; c < IW; ++c)
            if ((unsigned int)(first_column + c) < (unsigned int)in_w) found |= 1u << c;
        return found;
    }

    // Results' coordinates, as the epilogue takes them: channel `v` and column `t` of the thread, `row` of the part.
    __device__ __forceinline__ void at(int v, int row, int t, int (&to)[4]) const {
        to[0] = n, to[1] = channel + v, to[2] = row * DILATION_H + down.own, to[3] = (column0 + t) * DILATION_W + across.own;
    }
};

// Its channels' filters, row by row.
__device__ __forceinline__ void load_filters(const Params& p, int channel, Accum (&weight)[R][S][V]) {
    const Filter* const from = p.filter + channel * (R * S);
    Vec<Filter, FILTER_CHUNK> piece[V * R * S / FILTER_CHUNK];
    #pragma unroll
    for (int i = 0; i < V * R * S / FILTER_CHUNK; ++i) piece[i] = load_vec_read_only<FILTER_CHUNK>(from + i * FILTER_CHUNK);
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int v = 0; v < V; ++v) {
                const int at = v * (R * S) + (BACKWARD ? R - 1 - r : r) * FILTER_R + (BACKWARD ? S - 1 - s : s) * FILTER_S;
                weight[r][s][v] = widen<Accum>(piece[at / FILTER_CHUNK].at[at % FILTER_CHUNK]);
            }
}

// What the epilogue reads for its channels, before there are results.
__device__ __forceinline__ void keep_all(const Params& p, const Place& place, ColumnOperands (&kept)[V / WIDTH]) {
    #pragma unroll
    for (int v = 0; v < V; v += WIDTH) {
        const int at[4] = {place.n, place.channel + v, 0, place.column0 * DILATION_W + place.across.own};
        load_column_operands(p, at, kept[v / WIDTH]);
    }
}

// A finished row of sums through the epilogue.
__device__ __forceinline__ void leave(
    const Params& p, const Place& place, const ColumnOperands (&kept)[V / WIDTH], int row, const Accum (&sum)[TW][V]
) {
    #pragma unroll
    for (int t = 0; t < TW; ++t) {
        if (!EXACT && place.column0 + t >= place.out_w) continue;
        #pragma unroll
        for (int v = 0; v < V; v += WIDTH) {
            int at[4];
            place.at(v, row, t, at);
            Accum acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = sum[t][v + e];
            epilogue(p, at, kept[v / WIDTH], acc);
        }
    }
}
