// Depthwise filter gradient with unit stride, channels last: for each tap, a sum over pixels of products of x and dy,
// without shared memory until the end.
//
// A thread owns V channels of a tile of TW columns and ROWS rows of dy, and the sums of all taps. All rows that it reads are
// written out in the text, so that loads of later rows are under way while those of earlier ones are added; what
// neighbouring threads read as well comes from the cache. Then it takes the next of its tiles. In the end the block's sums
// meet in shared memory. They are one part of the whole: parts are added by blocks of a cluster (depthwise_wgrad_cluster.cuh)
// or by a second kernel (depthwise_wgrad_workspace.cuh), in a fixed order.
//
// Pixels that are not there are zeros here, but 0 times infinity is not: a block that finds NaN among its sums computes them
// again, from those that are there.

constexpr int CHANNELS_OUT = LANES * V;      // of a block
constexpr int SUMS = R * S * CHANNELS_OUT;   // likewise: [r][s][channel]
constexpr int IW = TW + S - 1;               // columns of x of a tile
constexpr int IH = ROWS + R - 1;

// Where a tile's dy and x begin.
struct Tile {
    int n, row, column, x_row, x_column;

    __device__ __forceinline__ Tile(const Params& p, int number) {
        const int by_rows = number / (int)p.tiles_across;
        column = (number - by_rows * (int)p.tiles_across) * TW;
        n = by_rows / (int)p.tiles_down;
        row = (by_rows - n * (int)p.tiles_down) * ROWS;
        x_row = row + (int)p.in_row, x_column = column + (int)p.in_column;
    }
};

// A block's sum for one filter element, the plain way.
__device__ __forceinline__ Accum exact_sum(const Params& p, int part, int channel, int r, int s) {
    Accum sum = (Accum)0;
    #pragma unroll 1
    for (int number = part * TILES; number < (int)p.tiles; number += (int)p.parts * TILES)
        #pragma unroll 1
        for (int i = 0; i < TILES * ROWS * TW; ++i) {
            const int own = number + i / (ROWS * TW), row = i / TW % ROWS, column = i % TW;
            if (own >= (int)p.tiles) break;
            const Tile tile(p, own);
            const int h = tile.x_row + row + r, w = tile.x_column + column + s;
            if (tile.row + row >= (int)p.out_h || tile.column + column >= (int)p.out_w ||
                (unsigned int)h >= (unsigned int)p.in_h || (unsigned int)w >= (unsigned int)p.in_w)
                continue;
            const long long at = tile.n * p.gathered_n + h * p.gathered_h + w * (long long)PITCH;
            const long long plain_at =
                tile.n * p.plain_n + (tile.row + row) * p.plain_h + (tile.column + column) * (long long)PLAIN_PITCH;
            multiply_add(
                sum, widen<Accum>(p.gathered[at + channel]), widen<Accum>(p.plain[plain_at + channel])
            );
        }
    return sum;
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, BLOCKS)
depthwise_wgrad_rows(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int part = part_of_block(p), channel_block = channels_of_block(p);
    // Threads behind the last tile do the first one's work once more and keep it to themselves: one path for all.
    const int place = (int)threadIdx.x % (LANES * TILES), of_block = place / LANES;
    const int local = (place - of_block * LANES) * V, channel = channel_block * CHANNELS_OUT + local;
    const bool mine = (int)threadIdx.x < LANES * TILES, is_there = channel < (int)p.channels_out;
    greet_parts();
    pdl_wait();
    // Never true. Loads of the read-only path, which the compiler takes to be of constants, would pass the wait; none passes
    // a place where threads may end.
    if (p.nothing != 0) return;

    Accum sum[R][S][V];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int v = 0; v < V; ++v) sum[r][s][v] = (Accum)0;

    #pragma unroll 1
    for (int number = part * TILES + of_block; number < (int)p.tiles; number += (int)p.parts * TILES) {
        const Tile tile(p, number);
        unsigned int inside = 0, plain_inside = 0;
        #pragma unroll
        for (int c = 0; c < IW; ++c)
            if ((unsigned int)(tile.x_column + c) < (unsigned int)p.in_w) inside |= 1u << c;
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            if (tile.column + t < (int)p.out_w) plain_inside |= 1u << t;
        const Gathered* from = p.gathered + tile.n * p.gathered_n + tile.x_row * p.gathered_h +
            tile.x_column * (long long)PITCH + channel;
        const Plain* plain = p.plain + tile.n * p.plain_n + tile.row * p.plain_h + tile.column * (long long)PLAIN_PITCH + channel;

        Gathered pack[AHEAD + 1][IW][V];  // rows under way
        Plain plain_pack[AHEAD + 1][TW][V];
        auto fetch = [&](int i) {
            const bool is_row = (WHOLE_CHANNELS || is_there) &&
                ((SAFE_ROW_FROM <= i && i < SAFE_ROW_TO) || (unsigned int)(tile.x_row + i) < (unsigned int)p.in_h);
            #pragma unroll
            for (int c = 0; c < IW; ++c) {
                const bool is_column = (SAFE_FROM <= c && c < SAFE_TO) || (inside >> c & 1u) != 0;
                load_if<V>(is_row && is_column, from + c * PITCH, pack[i % (AHEAD + 1)][c]);
            }
            from += p.gathered_h;
            if (i >= ROWS) return;
            const bool is_plain = (WHOLE_CHANNELS || is_there) && (WHOLE || tile.row + i < (int)p.out_h);
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                load_if<V>(
                    is_plain && (EXACT || (plain_inside >> t & 1u) != 0), plain + t * PLAIN_PITCH, plain_pack[i % (AHEAD + 1)][t]
                );
            plain += p.plain_h;
        };
        #pragma unroll
        for (int i = 0; i < AHEAD && i < IH; ++i) fetch(i);

        Accum dy[R][TW][V];
        #pragma unroll
        for (int i = 0; i < IH; ++i) {
            if (i + AHEAD < IH) fetch(i + AHEAD);
            if (i < ROWS)
                #pragma unroll
                for (int t = 0; t < TW; ++t)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) dy[i % R][t][v] = widen<Accum>(plain_pack[i % (AHEAD + 1)][t][v]);
            Accum x[IW][V];
            #pragma unroll
            for (int c = 0; c < IW; ++c)
                #pragma unroll
                for (int v = 0; v < V; ++v) x[c][v] = widen<Accum>(pack[i % (AHEAD + 1)][c][v]);
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int r = 0; r < R; ++r) {
                    if (i - r < 0 || i - r >= ROWS) continue;
                    #pragma unroll
                    for (int s = 0; s < S; ++s)
                        #pragma unroll
                        for (int v = 0; v < V; ++v) multiply_add(sum[r][s][v], x[t + s][v], dy[(i - r) % R][t][v]);
                }
        }
    }

    pdl_trigger();
    Accum* const shared = (Accum*)memory;  // [tile][r][s][channel]
    bool strange = false;
    if (mine)
        #pragma unroll
        for (int r = 0; r < R; ++r)
            #pragma unroll
            for (int s = 0; s < S; ++s)
                #pragma unroll
                for (int v = 0; v < V; ++v) {
                    strange |= sum[r][s][v] != sum[r][s][v];
                    shared[of_block * SUMS + (r * S + s) * CHANNELS_OUT + local + v] = sum[r][s][v];
                }
    if (__syncthreads_or(strange)) {
        #pragma unroll 1
        for (int i = threadIdx.x; i < SUMS; i += THREADS) {
            const int at = channel_block * CHANNELS_OUT + i % CHANNELS_OUT, tap = i / CHANNELS_OUT;
            #pragma unroll 1
            for (int j = 0; j < TILES; ++j)
                shared[j * SUMS + i] = j == 0 && at < (int)p.channels_out ? exact_sum(p, part, at, tap / S, tap % S) : (Accum)0;
        }
        __syncthreads();
    }
    leave_part(p, shared, part, channel_block);
}
