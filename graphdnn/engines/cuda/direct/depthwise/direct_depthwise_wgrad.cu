// Filter gradient of depthwise convolutions: any filter, dilation and stride, one to three axes, either layout.
//
// A block owns CHANNELS channels, ROW_TAPS rows of taps (blockIdx.y) and every parts-th of the items: tiles of TW columns
// of dy. A thread keeps V channels' sums of ROW_TAPS x S taps, and goes from item to item; what neighbours share they find
// in the cache. Sums of a block's threads are added in a fixed order, and parts by a second kernel.

constexpr int CHANNELS = LANES * V;
constexpr int STEP = TW * STRIDE;
constexpr int LOW = -PAD, HIGH = (TW - 1) * STRIDE + (S - 1) * DILATION - PAD;
constexpr __host__ __device__ int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr int FIRST = floor_div(LOW, VEC) * VEC, PACKS = (HIGH - FIRST + VEC) / VEC;

constexpr __host__ __device__ bool is_read(int column) {
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < TW; ++t)
            if (t * STRIDE + s * DILATION - PAD == column) return true;
    return false;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) direct_depthwise_wgrad(const __grid_constant__ Params p) {
    __shared__ Accum shared[ALONG_COLUMNS ? THREADS / 32 * ROW_TAPS * S : PLACES * S * CHANNELS];
    pdl_trigger();
    pdl_wait();
    const int thread = (int)threadIdx.x, lane = thread % LANES, place = thread / LANES;
    const int channel = (int)blockIdx.x * CHANNELS + lane * V, group = (int)blockIdx.y;
    const bool active = place < PLACES && channel < (int)p.channels;

    Accum sum[ROW_TAPS][S][V];
    #pragma unroll
    for (int r = 0; r < ROW_TAPS; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int v = 0; v < V; ++v) sum[r][s][v] = (Accum)0;

    const Gathered* const gathered = p.gathered + channel * p.gathered_c;
    const Plain* const plain = p.plain + channel * p.plain_c;
    if (active) {
        #pragma unroll 1
        for (unsigned int item = blockIdx.z * PLACES + place; item < (unsigned int)p.items; item += gridDim.z * PLACES) {
            unsigned int rest = item;
            const int tile = (int)(rest % (unsigned int)p.tiles);
            rest /= (unsigned int)p.tiles;
            const int row = (int)(rest % (unsigned int)p.out_h);
            rest /= (unsigned int)p.out_h;
            const int plane = (int)(rest % (unsigned int)p.out_d), n = (int)(rest / (unsigned int)p.out_d);
            const int column0 = tile * TW;

            constexpr int OWN = ALONG_COLUMNS ? OUT_VEC : V;  // elements of an access to dy
            Vec<Plain, OWN> own[TW / OUT_VEC];
            const Plain* const from = plain + n * p.plain_n + plane * p.plain_d + row * p.plain_h;
            #pragma unroll
            for (int i = 0; i < TW / OUT_VEC; ++i) {
                const int column = column0 + i * OUT_VEC;
                #pragma unroll
                for (int e = 0; e < OWN; ++e) own[i].at[e] = Plain();
                if (column < (int)p.out_w)
                    own[i] = load_vec_read_only<OWN>(from + (ALONG_COLUMNS ? (Offset)column : column * (Offset)p.plain_w));
            }
            #pragma unroll
            for (int r = 0; r < ROW_TAPS; ++r) {
                const int tap = group * ROW_TAPS + r, rows = (int)p.filter_rows;
                const int d = plane * (int)p.stride_d + tap / rows * (int)p.dilation_d - (int)p.pad_d;
                const int h = row * (int)p.stride_h + tap % rows * (int)p.dilation_h - (int)p.pad_h;
                const bool inside = tap < (int)p.row_taps && (unsigned int)d < (unsigned int)p.in_d &&
                    (unsigned int)h < (unsigned int)p.in_h;
                const Gathered* const line = gathered + n * p.gathered_n + d * p.gathered_d + h * p.gathered_h;
                constexpr int EACH = ALONG_COLUMNS ? VEC : V;
                Vec<Gathered, EACH> pack[PACKS];
                #pragma unroll
                for (int i = 0; i < PACKS; ++i) {
                    const int column = tile * STEP + FIRST + i * VEC;
                    bool used = false;
                    #pragma unroll
                    for (int e = 0; e < VEC; ++e) used |= is_read(FIRST + i * VEC + e);
                    if (!used) continue;
                    #pragma unroll
                    for (int e = 0; e < EACH; ++e) pack[i].at[e] = Gathered();
                    if (inside && (unsigned int)column < (unsigned int)p.in_w)
                        pack[i] = load_vec_read_only<EACH>(
                            line + (ALONG_COLUMNS ? (Offset)column : column * (Offset)p.gathered_w));
                }
                // Columns of dy that are not there are left out: their zeros times an infinite x would not be zero.
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    if (!EXACT && column0 + t >= (int)p.out_w) continue;
                    #pragma unroll
                    for (int s = 0; s < S; ++s) {
                        const int at = t * STRIDE + s * DILATION - PAD - FIRST;
                        #pragma unroll
                        for (int v = 0; v < V; ++v)
                            multiply_add(
                                sum[r][s][v], widen<Accum>(pack[at / VEC].at[ALONG_COLUMNS ? at % VEC : v]),
                                widen<Accum>(own[t / OUT_VEC].at[ALONG_COLUMNS ? t % OUT_VEC : v])
                            );
                    }
                }
            }
        }
    }

    Accum* const to = p.partial + (long long)blockIdx.z * p.taps * p.padded_channels + (int)blockIdx.x * CHANNELS;
    if constexpr (ALONG_COLUMNS) {  // all threads of the block have the channel
        constexpr int SUMS = ROW_TAPS * S, WARPS = THREADS / 32;
        #pragma unroll
        for (int r = 0; r < ROW_TAPS; ++r)
            #pragma unroll
            for (int s = 0; s < S; ++s) {
                Accum all = sum[r][s][0];
                #pragma unroll
                for (int half = 16; half > 0; half /= 2) all = wrapping_sum(all, __shfl_xor_sync(0xffffffffu, all, half));
                if (thread % 32 == 0) shared[thread / 32 * SUMS + r * S + s] = all;
            }
        __syncthreads();
        for (int i = thread; i < SUMS; i += THREADS) {
            Accum all = shared[i];
            #pragma unroll
            for (int warp = 1; warp < WARPS; ++warp) all = wrapping_sum(all, shared[warp * SUMS + i]);
            const int tap = group * SUMS + i;
            if (tap < (int)p.taps) to[tap * p.padded_channels] = all;
        }
    } else {
        #pragma unroll
        for (int r = 0; r < ROW_TAPS; ++r) {
            __syncthreads();
            if (place < PLACES)
                #pragma unroll
                for (int s = 0; s < S; ++s)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) shared[(place * S + s) * CHANNELS + lane * V + v] = sum[r][s][v];
            __syncthreads();
            if (group * ROW_TAPS + r >= (int)p.row_taps) continue;
            for (int i = thread; i < S * CHANNELS; i += THREADS) {
                Accum all = shared[i];
                #pragma unroll 4
                for (int j = 1; j < PLACES; ++j) all = wrapping_sum(all, shared[j * S * CHANNELS + i]);
                to[((group * ROW_TAPS + r) * S + i / CHANNELS) * p.padded_channels + i % CHANNELS] = all;
            }
        }
    }
}

// A warp's lanes are channels, a block's warps share the parts of one tap: each adds every SLICES-th, in order.
extern "C" __global__ void __launch_bounds__(32 * SLICES) direct_depthwise_sum(const __grid_constant__ Params p) {
    __shared__ Accum shared[SLICES][32];
    pdl_trigger();
    pdl_wait();
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int channel = (int)blockIdx.x * 32 + lane, tap = (int)blockIdx.y;
    const bool inside = channel < (int)p.channels;
    Accum sum = (Accum)0;
    if (inside) {
        const Accum* from = p.partial + (long long)tap * p.padded_channels + channel;
        #pragma unroll 8
        for (int i = slice; i < (int)p.parts; i += SLICES)
            sum = wrapping_sum(sum, from[i * p.taps * p.padded_channels]);
    }
    shared[slice][lane] = sum;
    __syncthreads();
    if (slice != 0 || !inside) return;
    #pragma unroll
    for (int i = 1; i < SLICES; ++i) sum = wrapping_sum(sum, shared[i][lane]);
    const int stored = FLIP ? (int)p.taps - 1 - tap : tap, rows = (int)p.filter_rows, line = stored / S;
    const int at[6] = {channel, 0, 0, line / rows, line % rows, stored % S};
    const Accum acc[1] = {sum};
    epilogue(p, at, acc);
}
