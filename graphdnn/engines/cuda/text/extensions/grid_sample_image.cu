// The gradient of the image: a block has a tile of pixels and some channels, and looks at all positions of its image in
// order, so that sums have one order. Positions are placed together, THREADS at a time. Those that meet the tile are
// listed, and each warp, which has a row of the tile, passes over those that miss its row.

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_image(const __grid_constant__ Params p) {
    constexpr int WARPS = THREADS / 32;
    static_assert(TILE_COLUMNS == 32, "a warp is a row");
    __shared__ int lefts[THREADS], tops[THREADS], offsets[THREADS], found[WARPS];
    __shared__ Compute rights[THREADS], bottoms[THREADS];

    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const long long tiles = p.tiles_across * p.tiles_down;
    const long long tile = (long long)blockIdx.x % tiles, above = (long long)blockIdx.x / tiles;
    const int first = (int)(above % p.groups) * CHANNELS;
    const int last = (int)p.channels - 1 - first;
    const long long n = above / p.groups;
    const int top = (int)(tile / p.tiles_across) * TILE_ROWS, left = (int)(tile % p.tiles_across) * TILE_COLUMNS;
    const int h = top + warp, w = left + lane;

    Compute sum[CHANNELS];
    #pragma unroll
    for (int c = 0; c < CHANNELS; ++c) sum[c] = Compute(0);

    const int positions = (int)(p.rows * p.columns);
    const Index image = (Index)n * (Index)p.dy_stride[0] + first * (Index)p.dy_stride[1];
    for (int start = 0; start < positions; start += THREADS) {
        const int mine = start + thread;
        Place place;
        bool meets = false;
        int row = 0, column = 0;
        if (mine < positions) {
            row = mine / (int)p.columns, column = mine - row * (int)p.columns;
            place = place_at(n, row, column, p);
            meets = place.is_near && place.left < left + TILE_COLUMNS && place.left + 1 >= left &&
                    place.top < top + TILE_ROWS && place.top + 1 >= top;
        }
        const unsigned int votes = __ballot_sync(~0u, meets);
        if (lane == 0) found[warp] = __popc(votes);
        __syncthreads();
        int many = 0, before = __popc(votes & ((1u << lane) - 1));
        #pragma unroll
        for (int i = 0; i < WARPS; ++i) {
            before += i < warp ? found[i] : 0;
            many += found[i];
        }
        if (meets) {
            lefts[before] = place.left;
            tops[before] = place.top;
            rights[before] = place.right_share;
            bottoms[before] = place.bottom_share;
            offsets[before] = mine;
        }
        __syncthreads();
        for (int base = 0; base < many; base += 32) {
            const bool listed = base + lane < many;
            const int down_of_lane = listed ? h - tops[base + lane] : -1;
            unsigned int hits = __ballot_sync(~0u, down_of_lane == 0 || down_of_lane == 1), own = 0;
            for (; hits; hits &= hits - 1) {  // which of the row's positions are those of this lane's pixel
                const int bit = __ffs((int)hits) - 1, across = w - lefts[base + bit];
                own |= across == 0 || across == 1 ? 1u << bit : 0;
            }
            if (w >= (int)p.width) own = 0;
            for (; own; own &= own - 1) {  // lanes go through their own together
                const int k = base + __ffs((int)own) - 1, down = h - tops[k], across = w - lefts[k];
                const Compute weight = (across ? rights[k] : Compute(1) - rights[k]) *
                                       (down ? bottoms[k] : Compute(1) - bottoms[k]);
                const int at = offsets[k], row_of = at / (int)p.columns;
                const Index from = image + row_of * (Index)p.dy_stride[2] +
                                   (at - row_of * (int)p.columns) * (Index)p.dy_stride[3];
                #pragma unroll
                for (int c = 0; c < CHANNELS; ++c)  // beyond the last, the last one again
                    sum[c] += widen<Compute>(p.dy[from + (c < last ? c : last) * (Index)p.dy_stride[1]]) * weight;
            }
        }
        __syncthreads();  // before the next positions are written over these
    }
    if (h >= (int)p.height || w >= (int)p.width) return;
    const Index to = (Index)n * (Index)p.dx_stride[0] + h * (Index)p.dx_stride[2] + w * (Index)p.dx_stride[3];
    #pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        if (c <= last) store(p, to + (first + c) * (Index)p.dx_stride[1], sum[c]);
}
