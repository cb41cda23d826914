// Filter gradient with few channels per group: for each tap, a sum over pixels of products of x and dy.
//
// The walk is that of the forward direction (direct.cu), with rows of dy where that has sums: a thread keeps a window
// of rows of dy in registers, V channels of TW columns, and its sums for all taps. A block goes through its items
// (image, columns, rows) without a pause, rows of the next one under way while it adds those of the last. Partial sums
// of blocks are added in their order by a second kernel, so that results repeat to the bit.

constexpr int CHANNELS_IN = CHANNELS_OUT / GROUP_OUT * GROUP_IN;
constexpr int IV = V <= GROUP_OUT ? GROUP_IN : V / GROUP_OUT * GROUP_IN;  // channels of x of a thread
static_assert(CHANNELS_OUT % GROUP_OUT == 0 && (GROUP_OUT % V == 0 || V % GROUP_OUT == 0), "whole groups");

typedef Ring<Gathered, IN_ROWS, COLUMNS, CHANNELS_IN, CHUNK, STAGES> Images;
typedef Ring<Plain, 1, TILES * TW, CHANNELS_OUT, PLAIN_CHUNK, STAGES> Gradients;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int channel_block = (int)blockIdx.x;
    // Threads behind the last tile do the first one's work once more and keep it to themselves: one path for all.
    const bool extra = (int)threadIdx.x >= LANES * TILES;
    const int place = (int)threadIdx.x % (LANES * TILES);
    const int tile = place / LANES, local = (place - tile * LANES) * V, local_in = local / GROUP_OUT * GROUP_IN;

    Items<Images, Gradients, 1, 0> items(memory, channel_block * CHANNELS_IN, channel_block * CHANNELS_OUT);
    const Images& images = items.images;
    const Gradients& gradients = items.gradients;

    Accum sum[R][S][GROUP_IN][V];
    #pragma unroll
    for (int r = 0; r < R; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int c = 0; c < GROUP_IN; ++c)
                #pragma unroll
                for (int v = 0; v < V; ++v) sum[r][s][c][v] = (Accum)0;

    #pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) items.fetch(p, (int)p.channels_in);
    int slot = 0;
    #pragma unroll 1
    for (unsigned int index = blockIdx.y; index < (unsigned int)p.items; index += gridDim.y) {
        const Item<1> item(p, index);
        const int column0 = (item.column_block * TILES + tile) * TW;
        const bool whole = EXACT || column0 + TW <= item.out_w;
        Accum dy[WINDOW][TW][V];
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k)
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int v = 0; v < V; ++v) dy[k][t][v] = (Accum)0;
        int row = item.first * IN_ROWS + item.down.shift;
        #pragma unroll 1
        for (int step = 0; step < item.turns; ++step) {
            await_copies<STAGES - 2>();
            __syncthreads();  // this step is there for all, and all have left the slot that is filled next
            items.fetch(p, (int)p.channels_in);
            const Plain* const next = gradients.at(slot, 0, tile * TW, local);
            #pragma unroll
            for (int t = 0; t < TW; ++t) {
                #pragma unroll
                for (int k = 0; k + 1 < WINDOW; ++k)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) dy[k][t][v] = dy[k + 1][t][v];
                const Vec<Plain, V> pack = load_vec<V>(next + t * CHANNELS_OUT);
                #pragma unroll
                for (int v = 0; v < V; ++v) dy[WINDOW - 1][t][v] = widen<Accum>(pack.at[v]);
            }
            #pragma unroll
            for (int u = 0; u < IN_ROWS; ++u) {
                if (u >= R || (unsigned int)(row + u) >= (unsigned int)item.in_h) continue;
                const Gathered* const here = images.at(slot, u, tile * STEP_W, local_in);
                Accum x[IW][IV];
                #pragma unroll
                for (int i = 0; i < IW; ++i)
                    #pragma unroll
                    for (int c = 0; c < IV; c += LV) {
                        const Vec<Gathered, LV> pack = load_vec<LV>(here + i * CHANNELS_IN + c);
                        #pragma unroll
                        for (int e = 0; e < LV; ++e) x[i][c + e] = widen<Accum>(pack.at[e]);
                    }
                auto add = [&](int k, int t) {
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
                                    sum[r][s][c][v], x[i][V <= GROUP_OUT ? c : v / GROUP_OUT * GROUP_IN + c], dy[k][t][v]
                                );
                    }
                };
                // Pixels of dy that are not there are left out: their zeros times an infinite x would not be zero.
                if (whole && step >= WINDOW - 1 && item.first + step < item.last) {
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k)
                        #pragma unroll
                        for (int t = 0; t < TW; ++t) add(k, t);
                } else {
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k) {
                        const int from = step - (WINDOW - 1 - k);
                        if (from < 0 || item.first + from >= item.last) continue;
                        #pragma unroll
                        for (int t = 0; t < TW; ++t)
                            if (EXACT || column0 + t < item.out_w) add(k, t);
                    }
                }
            }
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            row += IN_ROWS;
        }
    }
    await_copies<0>();
    pdl_trigger();

    if (add_tiles(p, memory, !extra, tile, local, channel_block, sum)) add_exactly<1, CHANNELS_OUT>(p, channel_block);
}
