// Direct convolution with few channels per group on CUDA cores, fprop and dgrad. It is memory-bound, so it reads each
// element once. Output channel o reads the GROUP_IN channels of its group o / GROUP_OUT.
//
// Tile:       a CTA owns CHANNELS_OUT channels of TILES * TW columns, and slides down a segment of rows.
// Pipeline:   cp.async fills a ring of STAGES steps in shared memory, STAGES - STEPS_PER_WAIT steps ahead. The CTA
//             synchronizes once in STEPS_PER_WAIT steps.
// Threads:    a thread owns V channels of TW columns. It keeps a window of WINDOW output rows as accumulators, adds all
//             products of each row that arrives, and stores an output row after its last contribution.
// Filters:    registers (FILTER_IN_REGISTERS), or a table [r][s][c][output channel] in shared memory.
// Epilogue:   generated pointwise operations on VEC_WIDTH neighbouring channels, then direct stores.
//
// Required constants (from the generator), besides those of direct_row_ring.cuh: V, CHANNEL_THREADS: channels of a thread, and
// threads along the channels. GROUP_IN, GROUP_OUT: channels of a group. COPY_ELEMS, FILTER_COPY_ELEMS, LOAD_ELEMS: elements of
// a copy and of a shared-memory load. STAGES, STEPS_PER_WAIT: see above. DILATION_H, DILATION_W, FLIP: the filter. VEC_WIDTH:
// see above. WHOLE_COLUMNS: the tiles divide the columns. CTAS_PER_SM: CTAs that fit on an SM.

#include "pdl.cuh"
#include "direct_copy.cuh"
#include "direct_row_ring.cuh"
#include "dilation_phase.cuh"

constexpr int CHANNELS_OUT = CHANNEL_THREADS * V;
constexpr int CHANNELS_IN = CHANNELS_OUT / GROUP_OUT * GROUP_IN;
constexpr int IV = V <= GROUP_OUT ? GROUP_IN : V / GROUP_OUT * GROUP_IN;  // input channels that a thread reads
constexpr int GROUP_TAPS = GROUP_OUT * GROUP_IN * R * S;                  // elements of a group's filters
constexpr int FILTER_ELEMENTS = CHANNELS_OUT / GROUP_OUT * GROUP_TAPS;               // elements of a CTA's filters
static_assert(STAGES >= 2 * STEPS_PER_WAIT, "steps arrive while others are used");
static_assert(CHANNELS_OUT % GROUP_OUT == 0 && (GROUP_OUT % V == 0 || V % GROUP_OUT == 0), "whole groups");

typedef RowRing<ImageElement, IN_ROWS, COLUMNS, CHANNELS_IN, COPY_ELEMS, STAGES> XRing;
constexpr int FILTER_BYTES = (FILTER_ELEMENTS * (int)sizeof(Filter) + 15) / 16 * 16;

// The offset of a filter element within the CTA's filters: output channel `o` of the CTA, input channel `c` of the group.
__device__ __forceinline__ int filter_offset(const Params& p, int o, int c, int r, int s) {
    const int group = o / GROUP_OUT, lane = o % GROUP_OUT;
    const int k = DGRAD ? c : lane, channel = DGRAD ? lane : c;
    return group * GROUP_TAPS + k * (int)p.filter_k + channel * (int)p.filter_c +
        (FLIP ? R - 1 - r : r) * (int)p.filter_r + (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    pdl_trigger();
    pdl_wait();
    Filter* const smem_filter = (Filter*)(memory + XRing::BYTES);
    Accum* const filter_table = (Accum*)(memory + XRing::BYTES + FILTER_BYTES);

    unsigned int block = blockIdx.x;
    const int channel_block = (int)(block % (unsigned int)p.channel_blocks);
    block /= (unsigned int)p.channel_blocks;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int first = (int)(block % (unsigned int)p.segments * (unsigned int)p.segment_rows);
    block /= (unsigned int)p.segments;
    const DilationPhase phase_h = dilation_phase((int)(block % DILATION_H), (int)p.in_row, DILATION_H);
    block /= DILATION_H;
    const DilationPhase phase_w = dilation_phase((int)(block % DILATION_W), (int)p.in_column, DILATION_W);
    const int n = (int)(block / DILATION_W);
    const int in_h = phase_extent((int)p.in_h, phase_h.image_phase, DILATION_H), in_w = phase_extent((int)p.in_w, phase_w.image_phase, DILATION_W);
    const int out_h = phase_extent((int)p.out_h, phase_h.out_phase, DILATION_H), out_w = phase_extent((int)p.out_w, phase_w.out_phase, DILATION_W);
    const int last = first + (int)p.segment_rows < (int)p.rows ? first + (int)p.segment_rows : (int)p.rows;
    const int steps = last - first + WARMUP_STEPS;
    const int row0 = (DGRAD ? first - WARMUP_STEPS : first) * IN_ROWS + phase_h.shift;

    // Steps above the image contribute nothing, so the loop skips them. Steps below the image only store rows.
    const int above = row0 < 0 ? -row0 / IN_ROWS : 0, inside = (in_h - row0 + IN_ROWS - 1) / IN_ROWS;
    const int start = above < WARMUP_STEPS ? above : WARMUP_STEPS, stop = inside < steps ? inside : steps;

    XRing ring(memory);
    ring.begin_image(
        p.image + n * p.image_n + phase_h.image_phase * p.image_h + phase_w.image_phase * p.image_w, p.image_h * DILATION_H,
        p.image_w * DILATION_W, in_h, in_w, (int)p.channels_in, row0 + start * IN_ROWS,
        column_block * TILES * STEP_W + FIRST_COLUMN + phase_w.shift, channel_block * CHANNELS_IN
    );

    {  // the CTA's filters, in the order of global memory
        const Filter* source = p.filter + (long long)channel_block * FILTER_ELEMENTS;
        const long long remaining = p.filter_elements - (long long)channel_block * FILTER_ELEMENTS;
        for (int i = threadIdx.x * FILTER_COPY_ELEMS; i < FILTER_ELEMENTS; i += THREADS * FILTER_COPY_ELEMS)
            cp_async_zfill<FILTER_COPY_ELEMS * (int)sizeof(Filter)>(smem_filter + i, i < remaining ? source + i : p.filter, i < remaining);
    }
    cp_async_commit();
    #pragma unroll
    for (int i = 0; i < STAGES - STEPS_PER_WAIT; ++i) {
        if (start + i < stop) ring.load_step(i);
        cp_async_commit();
    }

    const int tile = (int)threadIdx.x / CHANNEL_THREADS, lane = (int)threadIdx.x - tile * CHANNEL_THREADS;
    const int local = lane * V, channel = channel_block * CHANNELS_OUT + local;
    const int local_in = local / GROUP_OUT * GROUP_IN;
    const int column0 = (column_block * TILES + tile) * TW + (int)p.out_column;
    const bool is_active = tile < TILES && channel < (int)p.channels_out && column0 < out_w;

    cp_async_wait<STAGES - STEPS_PER_WAIT>();
    __syncthreads();
    Accum weight[FILTER_IN_REGISTERS ? R : 1][FILTER_IN_REGISTERS ? S : 1][GROUP_IN][V];
    if constexpr (FILTER_IN_REGISTERS) {
        if (is_active) {
            #pragma unroll
            for (int r = 0; r < R; ++r)
                #pragma unroll
                for (int s = 0; s < S; ++s)
                    #pragma unroll
                    for (int c = 0; c < GROUP_IN; ++c)
                        #pragma unroll
                        for (int v = 0; v < V; ++v)
                            weight[r][s][c][v] = widen<Accum>(smem_filter[filter_offset(p, local + v, c, r, s)]);
        }
    } else {  // [r][s][c][output channel]: a thread's V channels are contiguous
        for (int i = threadIdx.x; i < R * S * GROUP_IN * CHANNELS_OUT; i += THREADS) {
            const int o = i % CHANNELS_OUT, c = i / CHANNELS_OUT % GROUP_IN, tap = i / (CHANNELS_OUT * GROUP_IN);
            filter_table[i] = widen<Accum>(smem_filter[filter_offset(p, o, c, tap / S, tap % S)]);
        }
    }

    ColumnOperands column_operands[V / VEC_WIDTH];
    if (is_active)
        #pragma unroll
        for (int v = 0; v < V; v += VEC_WIDTH) {
            const int coord[4] = {n, channel + v, 0, column0 * DILATION_W + phase_w.out_phase};
            load_column_operands(p, coord, column_operands[v / VEC_WIDTH]);
        }

    Accum accum[WINDOW][TW][V];
    #pragma unroll
    for (int k = 0; k < WINDOW; ++k)
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            #pragma unroll
            for (int v = 0; v < V; ++v) accum[k][t][v] = (Accum)0;

    // Stores the rows that this step has completed, and shifts the window.
    auto store_rows = [&](int step) {
        if (step >= WARMUP_STEPS) {
            #pragma unroll
            for (int k = 0; k < OUT_ROWS; ++k) {
                const int out = (first + step - WARMUP_STEPS) * OUT_ROWS + k + (int)p.out_row;
                if ((unsigned int)out >= (unsigned int)out_h) continue;
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    if (!WHOLE_COLUMNS && (unsigned int)(column0 + t) >= (unsigned int)out_w) continue;
                    #pragma unroll
                    for (int v = 0; v < V; v += VEC_WIDTH) {
                        const int coord[4] = {
                            n, channel + v, out * DILATION_H + phase_h.out_phase, (column0 + t) * DILATION_W + phase_w.out_phase
                        };
                        Accum acc[VEC_WIDTH];
                        #pragma unroll
                        for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = accum[k][t][v + e];
                        epilogue(p, coord, column_operands[v / VEC_WIDTH], acc);
                    }
                }
            }
        }
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k)
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                #pragma unroll
                for (int v = 0; v < V; ++v)
                    accum[k][t][v] = k + OUT_ROWS < WINDOW ? accum[k + OUT_ROWS < WINDOW ? k + OUT_ROWS : 0][t][v] : (Accum)0;
    };

    // Adds the products of one step.
    auto multiply_rows = [&](int stage) {
        #pragma unroll
        for (int u = 0; u < IN_ROWS; ++u) {
            if (u >= R) continue;
            const ImageElement* const x_row = ring.row_ptr(stage, u, tile * STEP_W, local_in);
            if constexpr (FILTER_IN_REGISTERS && GROUP_IN == 1) {
                #pragma unroll
                for (int i = 0; i < IW; ++i) {
                    bool is_used = false;
                    #pragma unroll
                    for (int t = 0; t < TW; ++t) is_used |= column_tap(i, t) >= 0;
                    if (!is_used) continue;
                    Accum x[IV];
                    #pragma unroll
                    for (int c = 0; c < IV; c += LOAD_ELEMS) {
                        const Vec<ImageElement, LOAD_ELEMS> vec = load_vec<LOAD_ELEMS>(x_row + i * CHANNELS_IN + c);
                        #pragma unroll
                        for (int e = 0; e < LOAD_ELEMS; ++e) x[c + e] = widen<Accum>(vec.data[e]);
                    }
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k)
                        #pragma unroll
                        for (int t = 0; t < TW; ++t) {
                            const int r = row_tap(u, k), s = column_tap(i, t);
                            if (r < 0 || s < 0) continue;
                            #pragma unroll
                            for (int v = 0; v < V; ++v)
                                multiply_add(accum[k][t][v], x[V <= GROUP_OUT ? 0 : v / GROUP_OUT], weight[r][s][0][v]);
                        }
                }
            } else {
                Accum x[IW][IV];
                #pragma unroll
                for (int i = 0; i < IW; ++i)
                    #pragma unroll
                    for (int c = 0; c < IV; c += LOAD_ELEMS) {
                        const Vec<ImageElement, LOAD_ELEMS> vec = load_vec<LOAD_ELEMS>(x_row + i * CHANNELS_IN + c);
                        #pragma unroll
                        for (int e = 0; e < LOAD_ELEMS; ++e) x[i][c + e] = widen<Accum>(vec.data[e]);
                    }
                #pragma unroll
                for (int k = 0; k < WINDOW; ++k)
                    #pragma unroll
                    for (int s = 0; s < S; ++s)
                        #pragma unroll
                        for (int c = 0; c < GROUP_IN; ++c) {
                            const int r = row_tap(u, k);
                            if (r < 0) continue;
                            Accum w[V];
                            if constexpr (FILTER_IN_REGISTERS) {
                                #pragma unroll
                                for (int v = 0; v < V; ++v) w[v] = weight[r][s][c][v];
                            } else {
                                const Vec<Accum, V> vec =
                                    load_vec<V>(filter_table + ((r * S + s) * GROUP_IN + c) * CHANNELS_OUT + local);
                                #pragma unroll
                                for (int v = 0; v < V; ++v) w[v] = vec.data[v];
                            }
                            #pragma unroll
                            for (int t = 0; t < TW; ++t) {
                                const int i = tap_column(s, t);
                                if (i < 0) continue;
                                #pragma unroll
                                for (int v = 0; v < V; ++v)
                                    multiply_add(
                                        accum[k][t][v], x[i][V <= GROUP_OUT ? c : v / GROUP_OUT * GROUP_IN + c], w[v]
                                    );
                            }
                        }
            }
        }
    };

    int stage = 0, load_stage = STAGES - STEPS_PER_WAIT;  // stages of the next step, and of the next copy
    #pragma unroll 1
    for (int step = start; step < stop; step += STEPS_PER_WAIT) {
        cp_async_wait<STAGES - 2 * STEPS_PER_WAIT>();
        __syncthreads();  // the steps are visible to all threads, and no thread reads the stages that are filled next
        #pragma unroll
        for (int i = 0; i < STEPS_PER_WAIT; ++i) {
            if (step + STAGES - STEPS_PER_WAIT + i < stop) ring.load_step(load_stage);
            cp_async_commit();
            load_stage = load_stage + 1 == STAGES ? 0 : load_stage + 1;
        }
        if (is_active) {
            #pragma unroll
            for (int i = 0; i < STEPS_PER_WAIT; ++i) {
                if (i > 0 && step + i >= stop) break;
                multiply_rows(stage + i < STAGES ? stage + i : stage + i - STAGES);
                store_rows(step + i);
            }
        }
        stage = stage + STEPS_PER_WAIT < STAGES ? stage + STEPS_PER_WAIT : stage + STEPS_PER_WAIT - STAGES;
    }
    if (is_active) {
        #pragma unroll 1
        for (int step = start > stop ? start : stop; step < steps; ++step) store_rows(step);
    }
    cp_async_wait<0>();
}
