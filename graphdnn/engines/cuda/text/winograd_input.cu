// Tiles of the image in the transformed domain: v[block of tiles][...] of ALPHA x ALPHA components and channels, with
// neighbouring tiles next to each other. Tiles and channels beyond the last are 0.
//
// A thread transforms the tile of one channel. In channels-last images (TURNED) the lanes of a warp read CHANNELS
// neighbouring channels, and components pass through shared memory to be stored along the tiles.

constexpr int XI = ALPHA * ALPHA, TILES = 32, SLOTS = THREADS / CHANNELS;
constexpr int PITCH = TURNED ? TILES + SLOTS / (THREADS / 32) : 1;  // no two lanes of a warp on one bank

__device__ __forceinline__ void transformed(const Params& p, long long tile, int c, float (&v)[XI]) {
    #pragma unroll
    for (int i = 0; i < XI; ++i) v[i] = 0.0f;
    if (tile >= p.tiles || c >= p.channels) return;
    const Tile at = tile_of(p, tile);
    const int h0 = at.p * M - (int)p.pre[0], w0 = at.q * M - (int)p.pre[1];
    #pragma unroll
    for (int i = 0; i < ALPHA; ++i)
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) {
            const int h = h0 + i, w = w0 + j;
            if ((unsigned int)h < (unsigned int)p.size[0] && (unsigned int)w < (unsigned int)p.size[1]) {
                if constexpr (PROLOGUE) {
                    const int place[6] = {at.n, 0, c, 0, h, w};
                    float value[1];
                    prologue(p, place, value);
                    v[i * ALPHA + j] = value[0];
                } else {
                    const Image* from = p.image + (at.n * p.image_n + c * p.image_c + h * p.image_h + w * p.image_w);
                    v[i * ALPHA + j] = widen<float>(load_pack_read_only<1>(from).at[0]);
                }
            }
        }
    #pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
        float in[ALPHA], out[ALPHA];
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) in[i] = v[i * ALPHA + j];
        to_image(in, out);
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) v[i * ALPHA + j] = out[i];
    }
    #pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
        float in[ALPHA], out[ALPHA];
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) in[j] = v[i * ALPHA + j];
        to_image(in, out);
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) v[i * ALPHA + j] = out[j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, M == 2 ? 4 : 2) winograd_input(const __grid_constant__ Params p) {
    const long long first = (long long)blockIdx.x * TILES;
    const int c0 = (int)blockIdx.y * CHANNELS, lane = (int)threadIdx.x % TILES;
    float* const to = p.v + (first / BLOCK_TILES * p.v_block + first % BLOCK_TILES + lane);
    if constexpr (TURNED) {
        __shared__ float turned[XI * CHANNELS * PITCH];
        const int channel = (int)threadIdx.x % CHANNELS, slot = (int)threadIdx.x / CHANNELS;
        #pragma unroll 1
        for (int t = slot; t < TILES; t += SLOTS) {
            float v[XI];
            transformed(p, first + t, c0 + channel, v);
            #pragma unroll
            for (int i = 0; i < XI; ++i) turned[(i * CHANNELS + channel) * PITCH + t] = v[i];
        }
        __syncthreads();
        #pragma unroll 4
        for (int row = (int)threadIdx.x / TILES; row < XI * CHANNELS; row += THREADS / TILES) {
            const int i = row / CHANNELS, c = c0 + row % CHANNELS;
            if (c < p.padded_channels) to[c * p.v_c + i * p.v_xi] = turned[row * PITCH + lane];
        }
    } else {
        const int c = c0 + (int)threadIdx.x / TILES;
        if (c >= p.padded_channels) return;
        float v[XI];
        transformed(p, first + lane, c, v);
        #pragma unroll
        for (int i = 0; i < XI; ++i) to[c * p.v_c + i * p.v_xi] = v[i];
    }
}
