// winograd_input computes the Winograd input transform v = B^T d B of every tile and channel.
//
// Tile:    32 image tiles x CHANNELS channels for a CTA.
// Memory:  v is packed as the GEMM reads it, in blocks of BLOCK_TILES tiles, which are contiguous. Tiles and channels past the
//          end are 0.
// Threads: a thread transforms the tile of one channel. With TRANSPOSE_IN_SMEM (channels-last images) the lanes of a warp read
//          CHANNELS contiguous channels, and a transpose through shared memory makes the stores contiguous along the tiles.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA; CHANNELS: contiguous channels of a warp, a divisor of THREADS; TRANSPOSE_IN_SMEM: flag, see above.
//   ALPHA: components along an axis, 4 or 6; XI: ALPHA * ALPHA; BLOCK_TILES: tiles of a block of v.
//   PROLOGUE: 1 if pointwise operations precede the transform.

#include "winograd_algorithm.cuh"
#include "winograd_tile.cuh"
#include "winograd_image.cuh"

constexpr int TILES = 32, SLOTS = THREADS / CHANNELS;
constexpr int PITCH = TRANSPOSE_IN_SMEM ? TILES + SLOTS / (THREADS / 32) : 1;  // no two lanes of a warp on one bank

template <class Put> __device__ __forceinline__ void load_and_transform(const Params& p, long long tile, int c, Put put) {
    if constexpr (PROLOGUE) {
        float d[XI];
        const TileSource source = tile_source(p, tile, c);
        const InsideMask inside = c < p.channels ? source.inside : (InsideMask)0;
        const Tile at = tile_of(p, tile);
        #pragma unroll
        for (int i = 0; i < XI; ++i) {
            d[i] = 0.0f;
            if (!(inside >> i & 1)) continue;
            const int place[6] = {
                at.n, 0, c, 0, at.p * M - (int)p.pre[0] + i / ALPHA, at.q * M - (int)p.pre[1] + i % ALPHA};
            float value[1];
            prologue(p, place, value);
            d[i] = value[0];
        }
        input_transform([&](int i) { return d[i]; }, put);
    } else {
        Image d[XI];
        load_tile(p, tile_source(p, tile, c), d);
        input_transform([&](int i) { return widen<float>(d[i]); }, put);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, M == 2 ? 4 : 2) winograd_input(const __grid_constant__ Params p) {
    const long long first = (long long)blockIdx.x * TILES;
    const int c0 = (int)blockIdx.y * CHANNELS, lane = (int)threadIdx.x % TILES;
    float* const to = p.v + (first / BLOCK_TILES * p.v_block + first % BLOCK_TILES + lane);
    if constexpr (TRANSPOSE_IN_SMEM) {
        __shared__ float smem_tile[XI * CHANNELS * PITCH];
        const int channel = (int)threadIdx.x % CHANNELS, slot = (int)threadIdx.x / CHANNELS;
        #pragma unroll 1
        for (int t = slot; t < TILES; t += SLOTS)
            load_and_transform(p, first + t, c0 + channel, [&](int i, float value) {
                smem_tile[(i * CHANNELS + channel) * PITCH + t] = value;
            });
        __syncthreads();
        #pragma unroll 4
        for (int row = (int)threadIdx.x / TILES; row < XI * CHANNELS; row += THREADS / TILES) {
            const int i = row / CHANNELS, c = c0 + row % CHANNELS;
            if (c < p.padded_channels) to[c * p.v_c + i * p.v_xi] = smem_tile[row * PITCH + lane];
        }
    } else {
        const int c = c0 + (int)threadIdx.x / TILES;
        if (c >= p.padded_channels) return;
        load_and_transform(p, first + lane, c, [&](int i, float value) { to[c * p.v_c + i * p.v_xi] = value; });
    }
}
