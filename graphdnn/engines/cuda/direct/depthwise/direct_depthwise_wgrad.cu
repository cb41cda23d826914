// Depthwise filter gradient: any filter, dilation and stride, one to three axes, either layout.
//
// Tile:       a CTA owns CHANNELS channels, ROW_TAPS rows of taps (blockIdx.y) and every gridDim.z-th group of work items, which
//             are tiles of TW columns of dy. A thread accumulates V channels of ROW_TAPS x S taps.
// Loads:      elements that neighbouring threads also read come from the L1 cache. There is no shared memory in the main loop.
// Epilogue:   the threads of a CTA are added in a fixed order, and a second launch, direct_depthwise_sum, adds the splits.
//
// Required constants (from the generator): COLUMNS_CONTIGUOUS, FLIP, S, STRIDE, DILATION, PAD as in direct_depthwise.cu. V, TW,
// COLUMN_VEC, DY_COLUMN_VEC: channels and columns of a thread, columns of a load of x and of dy. ROW_TAPS, CHANNEL_THREADS,
// THREAD_SLOTS (threads along the work items), THREADS, REDUCE_WARPS (warps of the second launch), WHOLE_COLUMNS (tiles divide
// the columns).

#include "pdl.cuh"

constexpr int CHANNELS = CHANNEL_THREADS * V;
constexpr int STEP = TW * STRIDE;
constexpr int LOW = -PAD, HIGH = (TW - 1) * STRIDE + (S - 1) * DILATION - PAD;
constexpr __host__ __device__ int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr int FIRST = floor_div(LOW, COLUMN_VEC) * COLUMN_VEC, ROW_VECS = (HIGH - FIRST + COLUMN_VEC) / COLUMN_VEC;

constexpr __host__ __device__ bool is_read(int column) {
    for (int s = 0; s < S; ++s)
        for (int t = 0; t < TW; ++t)
            if (t * STRIDE + s * DILATION - PAD == column) return true;
    return false;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) direct_depthwise_wgrad(const __grid_constant__ Params p) {
    __shared__ Accum shared[COLUMNS_CONTIGUOUS ? THREADS / 32 * ROW_TAPS * S : THREAD_SLOTS * S * CHANNELS];
    pdl_trigger();
    pdl_wait();
    const int thread = (int)threadIdx.x, lane = thread % CHANNEL_THREADS, slot_index = thread / CHANNEL_THREADS;
    const int channel = (int)blockIdx.x * CHANNELS + lane * V, group = (int)blockIdx.y;
    const bool is_active = slot_index < THREAD_SLOTS && channel < (int)p.channels;

    Accum accum[ROW_TAPS][S][V];
    #pragma unroll
    for (int r = 0; r < ROW_TAPS; ++r)
        #pragma unroll
        for (int s = 0; s < S; ++s)
            #pragma unroll
            for (int v = 0; v < V; ++v) accum[r][s][v] = (Accum)0;

    const ImageElement* const image = p.image + channel * p.image_c;
    const DyElement* const dy_source = p.dy + channel * p.dy_c;
    if (is_active) {
        #pragma unroll 1
        for (unsigned int work_item = blockIdx.z * THREAD_SLOTS + slot_index; work_item < (unsigned int)p.items; work_item += gridDim.z * THREAD_SLOTS) {
            unsigned int rem = work_item;
            const int tile = (int)(rem % (unsigned int)p.tiles);
            rem /= (unsigned int)p.tiles;
            const int row = (int)(rem % (unsigned int)p.out_h);
            rem /= (unsigned int)p.out_h;
            const int plane = (int)(rem % (unsigned int)p.out_d), n = (int)(rem / (unsigned int)p.out_d);
            const int column0 = tile * TW;

            constexpr int DY_LOAD_ELEMS = COLUMNS_CONTIGUOUS ? DY_COLUMN_VEC : V;  // elements of a load of dy
            Vec<DyElement, DY_LOAD_ELEMS> dy[TW / DY_COLUMN_VEC];
            const DyElement* const source = dy_source + n * p.dy_n + plane * p.dy_d + row * p.dy_h;
            #pragma unroll
            for (int i = 0; i < TW / DY_COLUMN_VEC; ++i) {
                const int column = column0 + i * DY_COLUMN_VEC;
                #pragma unroll
                for (int e = 0; e < DY_LOAD_ELEMS; ++e) dy[i].data[e] = DyElement();
                if (column < (int)p.out_w)
                    dy[i] = load_vec_read_only<DY_LOAD_ELEMS>(source + (COLUMNS_CONTIGUOUS ? (Offset)column : column * (Offset)p.dy_w));
            }
            #pragma unroll
            for (int r = 0; r < ROW_TAPS; ++r) {
                const int tap = group * ROW_TAPS + r, rows = (int)p.filter_rows;
                const int d = plane * (int)p.stride_d + tap / rows * (int)p.dilation_d - (int)p.pad_d;
                const int h = row * (int)p.stride_h + tap % rows * (int)p.dilation_h - (int)p.pad_h;
                const bool inside = tap < (int)p.row_taps && (unsigned int)d < (unsigned int)p.in_d &&
                    (unsigned int)h < (unsigned int)p.in_h;
                const ImageElement* const line = image + n * p.image_n + d * p.image_d + h * p.image_h;
                constexpr int LOAD_ELEMS = COLUMNS_CONTIGUOUS ? COLUMN_VEC : V;
                Vec<ImageElement, LOAD_ELEMS> vec[ROW_VECS];
                #pragma unroll
                for (int i = 0; i < ROW_VECS; ++i) {
                    const int column = tile * STEP + FIRST + i * COLUMN_VEC;
                    bool is_used = false;
                    #pragma unroll
                    for (int e = 0; e < COLUMN_VEC; ++e) is_used |= is_read(FIRST + i * COLUMN_VEC + e);
                    if (!is_used) continue;
                    #pragma unroll
                    for (int e = 0; e < LOAD_ELEMS; ++e) vec[i].data[e] = ImageElement();
                    if (inside && (unsigned int)column < (unsigned int)p.in_w)
                        vec[i] = load_vec_read_only<LOAD_ELEMS>(
                            line + (COLUMNS_CONTIGUOUS ? (Offset)column : column * (Offset)p.image_w));
                }
                // Columns outside dy are skipped: 0 * inf would be NaN.
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    if (!WHOLE_COLUMNS && column0 + t >= (int)p.out_w) continue;
                    #pragma unroll
                    for (int s = 0; s < S; ++s) {
                        const int column = t * STRIDE + s * DILATION - PAD - FIRST;
                        #pragma unroll
                        for (int v = 0; v < V; ++v)
                            multiply_add(
                                accum[r][s][v], widen<Accum>(vec[column / COLUMN_VEC].data[COLUMNS_CONTIGUOUS ? column % COLUMN_VEC : v]),
                                widen<Accum>(dy[t / DY_COLUMN_VEC].data[COLUMNS_CONTIGUOUS ? t % DY_COLUMN_VEC : v])
                            );
                    }
                }
            }
        }
    }

    Accum* const to = p.partial + (long long)blockIdx.z * p.taps * p.padded_channels + (int)blockIdx.x * CHANNELS;
    if constexpr (COLUMNS_CONTIGUOUS) {  // all threads of the CTA have the same channel
        constexpr int SUMS = ROW_TAPS * S, WARPS = THREADS / 32;
        #pragma unroll
        for (int r = 0; r < ROW_TAPS; ++r)
            #pragma unroll
            for (int s = 0; s < S; ++s) {
                Accum total = accum[r][s][0];
                #pragma unroll
                for (int half = 16; half > 0; half /= 2) total = wrapping_sum(total, __shfl_xor_sync(0xffffffffu, total, half));
                if (thread % 32 == 0) shared[thread / 32 * SUMS + r * S + s] = total;
            }
        __syncthreads();
        for (int i = thread; i < SUMS; i += THREADS) {
            Accum total = shared[i];
            #pragma unroll
            for (int warp = 1; warp < WARPS; ++warp) total = wrapping_sum(total, shared[warp * SUMS + i]);
            const int tap = group * SUMS + i;
            if (tap < (int)p.taps) to[tap * p.padded_channels] = total;
        }
    } else {
        #pragma unroll
        for (int r = 0; r < ROW_TAPS; ++r) {
            __syncthreads();
            if (slot_index < THREAD_SLOTS)
                #pragma unroll
                for (int s = 0; s < S; ++s)
                    #pragma unroll
                    for (int v = 0; v < V; ++v) shared[(slot_index * S + s) * CHANNELS + lane * V + v] = accum[r][s][v];
            __syncthreads();
            if (group * ROW_TAPS + r >= (int)p.row_taps) continue;
            for (int i = thread; i < S * CHANNELS; i += THREADS) {
                Accum total = shared[i];
                #pragma unroll 4
                for (int j = 1; j < THREAD_SLOTS; ++j) total = wrapping_sum(total, shared[j * S * CHANNELS + i]);
                to[((group * ROW_TAPS + r) * S + i / CHANNELS) * p.padded_channels + i % CHANNELS] = total;
            }
        }
    }
}

// The lanes of a warp are channels. The warps of a CTA divide the splits of one tap: each adds every REDUCE_WARPS-th split.
extern "C" __global__ void __launch_bounds__(32 * REDUCE_WARPS) direct_depthwise_sum(const __grid_constant__ Params p) {
    __shared__ Accum shared[REDUCE_WARPS][32];
    pdl_trigger();
    pdl_wait();
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int channel = (int)blockIdx.x * 32 + lane, tap = (int)blockIdx.y;
    const bool inside = channel < (int)p.channels;
    Accum accum = (Accum)0;
    if (inside) {
        const Accum* source = p.partial + (long long)tap * p.padded_channels + channel;
        #pragma unroll 8
        for (int i = slice; i < (int)p.splits; i += REDUCE_WARPS)
            accum = wrapping_sum(accum, source[i * p.taps * p.padded_channels]);
    }
    shared[slice][lane] = accum;
    __syncthreads();
    if (slice != 0 || !inside) return;
    #pragma unroll
    for (int i = 1; i < REDUCE_WARPS; ++i) accum = wrapping_sum(accum, shared[i][lane]);
    const int stored = FLIP ? (int)p.taps - 1 - tap : tap, rows = (int)p.filter_rows, line = stored / S;
    const int coord[6] = {channel, 0, 0, line / rows, line % rows, stored % S};
    const Accum acc[1] = {accum};
    epilogue(p, coord, acc);
}
