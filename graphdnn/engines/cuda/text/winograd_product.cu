// The products of F(2x2, 3x3) with the transform of the results and the epilogue in one kernel.
//
// A block has TILES tiles and OUTER channels of the result, in all 16 components: 16 products of TILES x OUTER over the
// summed channels. Sixteen threads share a component, each with 8 x 16 of its sums. At the end the components of a
// tile meet in shared memory. Its operands lie in memory as the block reads them, one piece after another:
//   v[block of tiles][channel][component][tile],   u[block of channels][channel][component][channel of the result]

constexpr int XI = ALPHA * ALPHA, TILES = BLOCK_TILES, OUTER = BLOCK_OUTER;
constexpr int STEP = 4, STAGES = 4;  // summed channels of a stage, stages in flight
constexpr int STAGE_V = STEP * XI * TILES, STAGE_U = STEP * XI * OUTER;
constexpr int TM = 8, TN = 16;
static_assert(THREADS == XI * (TILES / TM) * (OUTER / TN), "a thread for each register tile");

// The exchange of one group of 16 channels: a result's components one behind the other, or tiles next to each other.
constexpr int GROUP = 16, PITCH = CHANNELS_LAST ? GROUP + 4 : TILES + 4, ROWS = CHANNELS_LAST ? TILES : GROUP;

extern "C" __global__ void __launch_bounds__(THREADS, 1) winograd_product(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) float memory[];
    const long long blocks_k = (p.outer + OUTER - 1) / OUTER;
    const long long block_t = blockIdx.x / blocks_k, block_k = blockIdx.x - block_t * blocks_k;
    const float* from_v = p.v + block_t * p.v_block + threadIdx.x * 4;
    const float* from_u = p.u + block_k * p.u_block + threadIdx.x * 4;
    auto fetch = [&](int stage) {
        float* const to = memory + stage * (STAGE_V + STAGE_U) + threadIdx.x * 4;
        #pragma unroll
        for (int i = 0; i < STAGE_V / 4 / THREADS; ++i) copy_16(to + i * THREADS * 4, from_v + i * THREADS * 4);
        #pragma unroll
        for (int i = 0; i < STAGE_U / 4 / THREADS; ++i) copy_16(to + STAGE_V + i * THREADS * 4, from_u + i * THREADS * 4);
        from_v += STAGE_V;
        from_u += STAGE_U;
    };

    // Lanes next to each other read the same channels, lanes two apart the same tiles: a half warp is one pass.
    const int xi = (int)threadIdx.x / 16, lane = (int)threadIdx.x % 16;
    const int tile = (lane & 1) + (lane >> 3) * 2, channel = lane >> 1 & 3;
    float sum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = 0.0f;

    const int steps = (int)p.padded_channels / STEP;
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < steps) fetch(i);
        end_group();
    }
    int stage = 0;
    for (int s = 0; s < steps; ++s) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < steps) fetch((stage + STAGES - 1) % STAGES);
        end_group();
        const float* const v = memory + stage * (STAGE_V + STAGE_U) + xi * TILES + tile * 4;
        const float* const u = memory + stage * (STAGE_V + STAGE_U) + STAGE_V + xi * OUTER + channel * 4;
        #pragma unroll
        for (int k = 0; k < STEP; ++k) {
            float a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = v[k * XI * TILES + i / 4 * (TILES / (TM / 4)) + i % 4];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = u[k * XI * OUTER + j / 4 * (OUTER / (TN / 4)) + j % 4];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
        stage = (stage + 1) % STAGES;
    }

    #pragma unroll 1
    for (int group = 0; group < OUTER / GROUP; ++group) {
        __syncthreads();
        float* const to = memory + xi * ROWS * PITCH;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            if (j / 4 != group) continue;
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                const int t = i / 4 * (TILES / (TM / 4)) + tile * 4 + i % 4, k = channel * 4 + j % 4;
                to[CHANNELS_LAST ? t * PITCH + k : k * PITCH + t] = sum[i][j];
            }
        }
        __syncthreads();
        constexpr int W = CHANNELS_LAST ? WIDTH : 1;
        #pragma unroll 1
        for (int n = threadIdx.x; n < TILES * GROUP / W; n += THREADS) {
            const int t = CHANNELS_LAST ? n / (GROUP / W) : n % TILES, k = CHANNELS_LAST ? n % (GROUP / W) * W : n / TILES;
            const int outer = (int)block_k * OUTER + group * GROUP + k;
            const long long at = block_t * TILES + t;
            if (at >= p.tiles || outer >= p.outer) continue;
            const float* const from = memory + (CHANNELS_LAST ? t * PITCH + k : k * PITCH + t);
            float rows[M][ALPHA][W], y[M][M][W];
            #pragma unroll
            for (int e = 0; e < W; ++e) {
                #pragma unroll
                for (int j = 0; j < ALPHA; ++j) {
                    float in[ALPHA], out[M];
                    #pragma unroll
                    for (int i = 0; i < ALPHA; ++i) in[i] = from[(i * ALPHA + j) * ROWS * PITCH + e];
                    to_result(in, out);
                    #pragma unroll
                    for (int i = 0; i < M; ++i) rows[i][j][e] = out[i];
                }
                #pragma unroll
                for (int i = 0; i < M; ++i) {
                    float in[ALPHA], out[M];
                    #pragma unroll
                    for (int j = 0; j < ALPHA; ++j) in[j] = rows[i][j][e];
                    to_result(in, out);
                    #pragma unroll
                    for (int j = 0; j < M; ++j) y[i][j][e] = out[j];
                }
            }
            finish(p, at, outer, y);
        }
    }
}
