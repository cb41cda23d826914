// winograd_product computes Winograd F(2x2, 3x3) in one kernel: the GEMMs of all 16 components, the output transform and the
// epilogue.
//
// Tile:     TILES tiles of the image x OUTER output channels, in all 16 components.
// Pipeline: two stages of TILE_K input channels. Transformed filters come by cp.async. Image tiles (v) come by cp.async too, or
//           with FUSED_INPUT_TRANSFORM each thread transforms the tile of one channel during the multiply-adds of the previous
//           channels, which costs instructions and saves memory traffic.
// Memory:   filters are packed as a CTA reads them: u[block of channels][channel][component][output channel].
// Threads:  sixteen threads share a component; each has 8 x 16 accumulators.
// Epilogue: the components of a tile are exchanged through shared memory. If shared memory has room for this exchange beside the
//           stages (OVERLAP_EPILOGUE), CTAs are persistent, and the loads of the next work tile overlap the epilogue of the
//           current one.
//
// Required constants (from the generator):
//   THREADS: XI * (TILES / 8) * (OUTER / 16), which is also TILE_K * TILES; XI: components, 16.
//   BLOCK_TILES, BLOCK_OUTER: TILES and OUTER; VEC_WIDTH: channels of a vector store.
//   CHANNELS_LAST, IMAGE_CHANNELS_LAST: layouts of the result and of the image.
//   FUSED_INPUT_TRANSFORM, OVERLAP_EPILOGUE: flags, see above.

#include "winograd_algorithm.cuh"
#include "copies.cuh"
#include "winograd_image.cuh"
#include "winograd_finish.cuh"

constexpr int TILES = BLOCK_TILES, OUTER = BLOCK_OUTER;
constexpr int TILE_K = 8;                    // summed channels of a stage; there are two stages
constexpr int PITCH_V = XI * TILES + 4;    // of a channel: eight lanes with neighbouring channels are on different banks
constexpr int STAGE_V = TILE_K * PITCH_V, STAGE_U = TILE_K * XI * OUTER, STAGE = STAGE_V + STAGE_U;
constexpr int TM = 8, TN = 16;
static_assert(THREADS == XI * (TILES / TM) * (OUTER / TN), "a thread for each register tile");
static_assert(THREADS == TILE_K * TILES, "a thread for each tile and channel of a stage");

// The epilogue exchanges GROUP channels at a time. Rows of shared memory are tiles with contiguous channels if CHANNELS_LAST,
// else channels with contiguous tiles.
constexpr int GROUP = 32, PITCH = CHANNELS_LAST ? GROUP + 4 : TILES + 4, ROWS = CHANNELS_LAST ? TILES : GROUP;
static_assert(OVERLAP_EPILOGUE || XI * ROWS * PITCH <= 2 * STAGE, "the exchange takes the place of the stages");

extern "C" __global__ void __launch_bounds__(THREADS, 1) winograd_product(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) float memory[];
    const int thread = (int)threadIdx.x;
    const int tiles_n = (int)((p.outer + OUTER - 1) / OUTER), k_tiles = (int)p.padded_channels / TILE_K;
    float* const epilogue_smem = memory + (OVERLAP_EPILOGUE ? 2 * STAGE : 0);

    // The addresses of this thread's cp.async copies, and the tile and channel of each stage that it transforms.
    const float *from_v = nullptr, *from_u = nullptr;
    TileSource source = {};
    Image d[XI];
    const int thread_tile = IMAGE_CHANNELS_LAST ? thread / TILE_K : thread % TILES;
    const int thread_channel = IMAGE_CHANNELS_LAST ? thread % TILE_K : thread / TILES;
    float* const put = memory + thread_channel * PITCH_V + thread_tile;
    auto begin_work_tile = [&](int work_tile) {
        const long long block_t = work_tile / tiles_n;
        from_u = p.u + work_tile % tiles_n * p.u_block + thread * 4;
        if constexpr (FUSED_INPUT_TRANSFORM) source = tile_source(p, block_t * TILES + thread_tile, thread_channel);
        else from_v = p.v + block_t * p.v_block + thread * 4;
    };
    auto load_stage = [&](float* stage) {
        if constexpr (!FUSED_INPUT_TRANSFORM) {
            constexpr int COPIES_PER_CHANNEL = XI * TILES / 4;
            float* const to = stage + thread / COPIES_PER_CHANNEL * PITCH_V + thread % COPIES_PER_CHANNEL * 4;
            #pragma unroll
            for (int i = 0; i < TILE_K * COPIES_PER_CHANNEL / THREADS; ++i)
                cp_async_16(to + i * (THREADS / COPIES_PER_CHANNEL) * PITCH_V, from_v + i * THREADS * 4);
            from_v += TILE_K * XI * TILES;
        }
        float* const to = stage + STAGE_V + thread * 4;
        #pragma unroll
        for (int i = 0; i < STAGE_U / 4 / THREADS; ++i) cp_async_16(to + i * THREADS * 4, from_u + i * THREADS * 4);
        from_u += STAGE_U;
        cp_async_commit();
        if constexpr (FUSED_INPUT_TRANSFORM) {
            load_tile(p, source, d);
            source.from += TILE_K * p.image_c * (int)sizeof(Image);
            source.channel += TILE_K;
        }
    };
    auto transform_into = [&](float* to) {
        if constexpr (FUSED_INPUT_TRANSFORM)
            input_transform([&](int i) { return widen<float>(d[i]); }, [&](int i, float value) { to[i * TILES] = value; });
    };

    // Lanes that differ in bit 0 read the same channels, lanes that differ in bits 1 and 2 the same tiles. So shared memory
    // serves a half warp in one wavefront.
    const int xi = thread / 16, lane = thread % 16;
    const int tile = (lane & 1) + (lane >> 3) * 2, channel = lane >> 1 & 3;

    begin_work_tile((int)blockIdx.x);
    load_stage(memory);
    transform_into(put);
    int stage = 0;
    #pragma unroll 1
    for (int work_tile = (int)blockIdx.x; work_tile < p.work_tiles; work_tile += (int)gridDim.x) {
        float accum[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j) accum[i][j] = 0.0f;

        #pragma unroll 1
        for (int s = 0; s < k_tiles; ++s) {
            cp_async_wait<0>();
            __syncthreads();
            const int next = stage ^ 1;
            const bool last_k_tile = s + 1 == k_tiles, more = !last_k_tile || work_tile + (int)gridDim.x < p.work_tiles;
            if (last_k_tile && more) begin_work_tile(work_tile + (int)gridDim.x);
            if (more) load_stage(memory + next * STAGE);
            const float* const v = memory + stage * STAGE + xi * TILES + tile * 4;
            const float* const u = memory + stage * STAGE + STAGE_V + xi * OUTER + channel * 4;
            #pragma unroll
            for (int k = 0; k < TILE_K; ++k) {
                float a[TM], b[TN];
                #pragma unroll
                for (int i = 0; i < TM; ++i) a[i] = v[k * PITCH_V + i / 4 * (TILES / (TM / 4)) + i % 4];
                #pragma unroll
                for (int j = 0; j < TN; ++j) b[j] = u[k * XI * OUTER + j / 4 * (OUTER / (TN / 4)) + j % 4];
                #pragma unroll
                for (int i = 0; i < TM; ++i)
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) accum[i][j] = fmaf(a[i], b[j], accum[i][j]);
            }
            if (more) transform_into(put + next * STAGE);
            stage = next;
        }

        #pragma unroll 1
        for (int group = 0; group < OUTER / GROUP; ++group) {
            __syncthreads();
            float* const to = epilogue_smem + xi * ROWS * PITCH;
            constexpr int QUADS = GROUP / 16;  // vectors of four channels that a thread has in this group
            #pragma unroll
            for (int quad = 0; quad < TN / 4; ++quad) {
                if (quad / QUADS != group) continue;
                const int t = tile * 4, k = quad % QUADS * 16 + channel * 4;
                #pragma unroll
                for (int i = 0; i < TM; i += CHANNELS_LAST ? 1 : 4) {
                    #pragma unroll
                    for (int j = 0; j < 4; j += CHANNELS_LAST ? 4 : 1) {
                        const int at_t = i / 4 * (TILES / (TM / 4)) + t + i % 4, at_k = k + j;
                        Vec<float, 4> vec;
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) vec.data[e] = CHANNELS_LAST ? accum[i][quad * 4 + e] : accum[i + e][quad * 4 + j];
                        store_vec<4>(to + (CHANNELS_LAST ? at_t * PITCH + at_k : at_k * PITCH + at_t), vec);
                    }
                }
            }
            __syncthreads();
            constexpr int W = CHANNELS_LAST ? VEC_WIDTH : 1;
            #pragma unroll 1
            for (int n = thread; n < TILES * GROUP / W; n += THREADS) {
                const int t = CHANNELS_LAST ? n / (GROUP / W) : n % TILES, k = CHANNELS_LAST ? n % (GROUP / W) * W : n / TILES;
                const int outer = work_tile % tiles_n * OUTER + group * GROUP + k;
                const long long at = (long long)(work_tile / tiles_n) * TILES + t;
                if (at >= p.tiles || outer >= p.outer) continue;
                const float* const from = epilogue_smem + (CHANNELS_LAST ? t * PITCH + k : k * PITCH + t);
                float y[M][M][W];
                output_transform(y, [&](int component) {
                    Vec<float, W> vec;
                    if constexpr (W == 1) vec.data[0] = from[component * ROWS * PITCH];
                    else vec = *(const Vec<float, W>*)(from + component * ROWS * PITCH);
                    return vec;
                });
                store_tile(p, at, outer, y);
            }
        }
    }
}
