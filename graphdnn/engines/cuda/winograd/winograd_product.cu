// winograd_product computes Winograd F(2x2, 3x3) in one kernel: the GEMMs of all 16 components, the output transform and the
// epilogue.
//
// Tile:     TILES tiles of the image x OUTER output channels, in all 16 components.
// Pipeline: two stages of STEP input channels. Transformed filters come by cp.async. Image tiles (v) come by cp.async too, or
//           with FROM_IMAGE each thread transforms the tile of one channel during the products of the previous channels, which
//           costs instructions and saves traffic.
// Memory:   filters are packed as a CTA reads them: u[block of channels][channel][component][output channel].
// Threads:  sixteen threads share a component; each has 8 x 16 accumulators.
// Epilogue: the components of a tile are exchanged through shared memory. If shared memory has room for this exchange beside the
//           stages (APART), a CTA is persistent, and the loads of its next work tile overlap the epilogue of the current one.
//
// Required constants (from the generator):
//   THREADS: XI * (TILES / 8) * (OUTER / 16), which is also STEP * TILES; XI: components, 16.
//   BLOCK_TILES, BLOCK_OUTER: TILES and OUTER; WIDTH: channels of a vector store.
//   CHANNELS_LAST, IMAGE_CHANNELS_LAST: layouts of result and image; FROM_IMAGE, APART: flags, see above.

#include "winograd_algorithm.cuh"
#include "copies.cuh"
#include "winograd_image.cuh"
#include "winograd_finish.cuh"

constexpr int TILES = BLOCK_TILES, OUTER = BLOCK_OUTER;
constexpr int STEP = 8;                    // summed channels of a stage; there are two stages
constexpr int PITCH_V = XI * TILES + 4;    // of a channel: eight lanes with neighbouring channels are on different banks
constexpr int STAGE_V = STEP * PITCH_V, STAGE_U = STEP * XI * OUTER, STAGE = STAGE_V + STAGE_U;
constexpr int TM = 8, TN = 16;
static_assert(THREADS == XI * (TILES / TM) * (OUTER / TN), "a thread for each register tile");
static_assert(THREADS == STEP * TILES, "a thread for each tile and channel of a stage");

// The exchange of GROUP channels: a result's components one behind the other, or tiles next to each other.
constexpr int GROUP = 32, PITCH = CHANNELS_LAST ? GROUP + 4 : TILES + 4, ROWS = CHANNELS_LAST ? TILES : GROUP;
static_assert(APART || XI * ROWS * PITCH <= 2 * STAGE, "the exchange takes the place of the stages");

extern "C" __global__ void __launch_bounds__(THREADS, 1) winograd_product(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) float memory[];
    const int thread = (int)threadIdx.x;
    const int blocks_k = (int)((p.outer + OUTER - 1) / OUTER), steps = (int)p.padded_channels / STEP;
    float* const exchange = memory + (APART ? 2 * STAGE : 0);

    // What this thread copies and transforms: a place of each piece, a tile and a channel of each stage.
    const float *from_v = nullptr, *from_u = nullptr;
    Source source = {};
    Image d[XI];
    const int own_tile = IMAGE_CHANNELS_LAST ? thread / STEP : thread % TILES;
    const int own_channel = IMAGE_CHANNELS_LAST ? thread % STEP : thread / TILES;
    float* const put = memory + own_channel * PITCH_V + own_tile;
    auto start = [&](int turn) {
        const long long block_t = turn / blocks_k;
        from_u = p.u + turn % blocks_k * p.u_block + thread * 4;
        if constexpr (FROM_IMAGE) source = source_of(p, block_t * TILES + own_tile, own_channel);
        else from_v = p.v + block_t * p.v_block + thread * 4;
    };
    auto fetch = [&](float* stage) {
        if constexpr (!FROM_IMAGE) {
            constexpr int IN_ONE = XI * TILES / 4;  // copies of a channel
            float* const to = stage + thread / IN_ONE * PITCH_V + thread % IN_ONE * 4;
            #pragma unroll
            for (int i = 0; i < STEP * IN_ONE / THREADS; ++i)
                cp_async_16(to + i * (THREADS / IN_ONE) * PITCH_V, from_v + i * THREADS * 4);
            from_v += STEP * XI * TILES;
        }
        float* const to = stage + STAGE_V + thread * 4;
        #pragma unroll
        for (int i = 0; i < STAGE_U / 4 / THREADS; ++i) cp_async_16(to + i * THREADS * 4, from_u + i * THREADS * 4);
        from_u += STAGE_U;
        cp_async_commit();
        if constexpr (FROM_IMAGE) {
            read(p, source, d);
            source.from += STEP * p.image_c * (int)sizeof(Image);
            source.channel += STEP;
        }
    };
    auto transform_into = [&](float* to) {
        if constexpr (FROM_IMAGE)
            transform([&](int i) { return widen<float>(d[i]); }, [&](int i, float value) { to[i * TILES] = value; });
    };

    // Lanes next to each other read the same channels, lanes two apart the same tiles: a half warp is one pass.
    const int xi = thread / 16, lane = thread % 16;
    const int tile = (lane & 1) + (lane >> 3) * 2, channel = lane >> 1 & 3;

    start((int)blockIdx.x);
    fetch(memory);
    transform_into(put);
    int stage = 0;
    #pragma unroll 1
    for (int turn = (int)blockIdx.x; turn < p.turns; turn += (int)gridDim.x) {
        float sum[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;

        #pragma unroll 1
        for (int s = 0; s < steps; ++s) {
            cp_async_wait<0>();
            __syncthreads();
            const int next = stage ^ 1;
            const bool turns_over = s + 1 == steps, more = !turns_over || turn + (int)gridDim.x < p.turns;
            if (turns_over && more) start(turn + (int)gridDim.x);
            if (more) fetch(memory + next * STAGE);
            const float* const v = memory + stage * STAGE + xi * TILES + tile * 4;
            const float* const u = memory + stage * STAGE + STAGE_V + xi * OUTER + channel * 4;
            #pragma unroll
            for (int k = 0; k < STEP; ++k) {
                float a[TM], b[TN];
                #pragma unroll
                for (int i = 0; i < TM; ++i) a[i] = v[k * PITCH_V + i / 4 * (TILES / (TM / 4)) + i % 4];
                #pragma unroll
                for (int j = 0; j < TN; ++j) b[j] = u[k * XI * OUTER + j / 4 * (OUTER / (TN / 4)) + j % 4];
                #pragma unroll
                for (int i = 0; i < TM; ++i)
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
            }
            if (more) transform_into(put + next * STAGE);
            stage = next;
        }

        #pragma unroll 1
        for (int group = 0; group < OUTER / GROUP; ++group) {
            __syncthreads();
            float* const to = exchange + xi * ROWS * PITCH;
            constexpr int QUADS = GROUP / 16;  // of a thread's channels in this group
            #pragma unroll
            for (int quad = 0; quad < TN / 4; ++quad) {
                if (quad / QUADS != group) continue;
                const int t = tile * 4, k = quad % QUADS * 16 + channel * 4;
                #pragma unroll
                for (int i = 0; i < TM; i += CHANNELS_LAST ? 1 : 4) {
                    #pragma unroll
                    for (int j = 0; j < 4; j += CHANNELS_LAST ? 4 : 1) {
                        const int at_t = i / 4 * (TILES / (TM / 4)) + t + i % 4, at_k = k + j;
                        Vec<float, 4> pack;
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) pack.data[e] = CHANNELS_LAST ? sum[i][quad * 4 + e] : sum[i + e][quad * 4 + j];
                        store_vec<4>(to + (CHANNELS_LAST ? at_t * PITCH + at_k : at_k * PITCH + at_t), pack);
                    }
                }
            }
            __syncthreads();
            constexpr int W = CHANNELS_LAST ? WIDTH : 1;
            #pragma unroll 1
            for (int n = thread; n < TILES * GROUP / W; n += THREADS) {
                const int t = CHANNELS_LAST ? n / (GROUP / W) : n % TILES, k = CHANNELS_LAST ? n % (GROUP / W) * W : n / TILES;
                const int outer = turn % blocks_k * OUTER + group * GROUP + k;
                const long long at = (long long)(turn / blocks_k) * TILES + t;
                if (at >= p.tiles || outer >= p.outer) continue;
                const float* const from = exchange + (CHANNELS_LAST ? t * PITCH + k : k * PITCH + t);
                float y[M][M][W];
                results_of(y, [&](int component) {
                    Vec<float, W> pack;
                    if constexpr (W == 1) pack.data[0] = from[component * ROWS * PITCH];
                    else pack = *(const Vec<float, W>*)(from + component * ROWS * PITCH);
                    return pack;
                });
                finish(p, at, outer, y);
            }
        }
    }
}
