// The gradient of the image: a block has a tile of pixels and some channels, and looks at all positions of its image in
// order, so that sums have one order. Positions are placed together, THREADS at a time; those that miss the tile are
// passed over.

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_image(const __grid_constant__ Params p) {
    __shared__ int lefts[THREADS], tops[THREADS];
    __shared__ Compute rights[THREADS], bottoms[THREADS];

    const long long tiles = p.tiles_across * p.tiles_down;
    const long long tile = (long long)blockIdx.x % tiles, above = (long long)blockIdx.x / tiles;
    const long long first = above % p.groups * CHANNELS, n = above / p.groups;
    const int top = (int)(tile / p.tiles_across) * TILE_ROWS, left = (int)(tile % p.tiles_across) * TILE_COLUMNS;
    const int h = top + (int)threadIdx.x / TILE_COLUMNS, w = left + (int)threadIdx.x % TILE_COLUMNS;
    const bool is_pixel = h < (int)p.height && w < (int)p.width;

    Compute sum[CHANNELS];
    #pragma unroll
    for (int c = 0; c < CHANNELS; ++c) sum[c] = Compute(0);

    const long long positions = p.rows * p.columns;
    for (long long start = 0; start < positions; start += THREADS) {
        const long long mine = start + threadIdx.x;
        bool meets = false;
        if (mine < positions) {
            const Place place = place_at(n, mine / p.columns, mine % p.columns, p);
            lefts[threadIdx.x] = place.left;
            tops[threadIdx.x] = place.top;
            rights[threadIdx.x] = place.right_share;
            bottoms[threadIdx.x] = place.bottom_share;
            meets = place.is_near && place.left < left + TILE_COLUMNS && place.left + 1 >= left &&
                    place.top < top + TILE_ROWS && place.top + 1 >= top;
        }
        if (__syncthreads_or(meets)) {
            const int many = (int)(positions - start < THREADS ? positions - start : THREADS);
            for (int k = 0; k < many; ++k) {
                const int down = h - tops[k], across = w - lefts[k];
                if (!is_pixel || down < 0 || down > 1 || across < 0 || across > 1) continue;
                const Compute weight = (across ? rights[k] : Compute(1) - rights[k]) *
                                       (down ? bottoms[k] : Compute(1) - bottoms[k]);
                const long long at = start + k;
                const long long from = n * p.dy_stride[0] + first * p.dy_stride[1] + at / p.columns * p.dy_stride[2] +
                                       at % p.columns * p.dy_stride[3];
                #pragma unroll
                for (int c = 0; c < CHANNELS; ++c) {
                    if (first + c < p.channels) sum[c] += widen<Compute>(p.dy[from + c * p.dy_stride[1]]) * weight;
                }
            }
        }
        __syncthreads();  // before the next positions are written over these
    }
    if (!is_pixel) return;
    #pragma unroll
    for (int c = 0; c < CHANNELS; ++c) {
        if (first + c < p.channels) {
            store(p, n * p.dx_stride[0] + (first + c) * p.dx_stride[1] + h * p.dx_stride[2] + w * p.dx_stride[3], sum[c]);
        }
    }
}
