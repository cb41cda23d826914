// Direct convolution with few channels per group, fprop and dgrad: memory-bound, so each element is read once.
//
// A block owns CHANNELS_OUT channels of TILES * TW columns and walks down the image. Rows arrive in a ring in shared
// memory, STAGES - TOGETHER steps ahead of their use; between two waits, TOGETHER steps are used. A thread owns V channels
// of TW columns: it keeps a window of sums in registers, adds every product that a row takes part in, and stores a row
// when its last one has come.
//
// Output channel o reads the GROUP_IN channels of its group o / GROUP_OUT.

constexpr int CHANNELS_OUT = LANES * V;
constexpr int CHANNELS_IN = CHANNELS_OUT / GROUP_OUT * GROUP_IN;
constexpr int IV = V <= GROUP_OUT ? GROUP_IN : V / GROUP_OUT * GROUP_IN;  // input channels of a thread
constexpr int GROUP_TAPS = GROUP_OUT * GROUP_IN * R * S;                  // filter elements of a group
constexpr int SLAB = CHANNELS_OUT / GROUP_OUT * GROUP_TAPS;               // of a block
static_assert(STAGES >= 2 * TOGETHER, "steps arrive while others are used");
static_assert(CHANNELS_OUT % GROUP_OUT == 0 && (GROUP_OUT % V == 0 || V % GROUP_OUT == 0), "whole groups");

typedef Ring<Gathered, IN_ROWS, COLUMNS, CHANNELS_IN, CHUNK, STAGES> Rows;
constexpr int SLAB_BYTES = (SLAB * (int)sizeof(Filter) + 15) / 16 * 16;

// The block's part of a filter element's place: output channel `o` of the block, input channel `c` of the group.
__device__ __forceinline__ int filter_offset(const Params& p, int o, int c, int r, int s) {
    const int group = o / GROUP_OUT, lane = o % GROUP_OUT;
    const int k = DGRAD ? c : lane, channel = DGRAD ? lane : c;
    return group * GROUP_TAPS + k * (int)p.filter_k + channel * (int)p.filter_c +
        (FLIP ? R - 1 - r : r) * (int)p.filter_r + (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    pdl_trigger();
    pdl_wait();
    Filter* const slab = (Filter*)(memory + Rows::BYTES);
    Accum* const table = (Accum*)(memory + Rows::BYTES + SLAB_BYTES);

    unsigned int block = blockIdx.x;
    const int channel_block = (int)(block % (unsigned int)p.channel_blocks);
    block /= (unsigned int)p.channel_blocks;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int first = (int)(block % (unsigned int)p.segments * (unsigned int)p.segment_rows);
    block /= (unsigned int)p.segments;
    const Remainder down = remainder_of((int)(block % DILATION_H), (int)p.in_row, DILATION_H);
    block /= DILATION_H;
    const Remainder across = remainder_of((int)(block % DILATION_W), (int)p.in_column, DILATION_W);
    const int n = (int)(block / DILATION_W);
    const int in_h = places((int)p.in_h, down.met, DILATION_H), in_w = places((int)p.in_w, across.met, DILATION_W);
    const int out_h = places((int)p.out_h, down.own, DILATION_H), out_w = places((int)p.out_w, across.own, DILATION_W);
    const int last = first + (int)p.segment_rows < (int)p.rows ? first + (int)p.segment_rows : (int)p.rows;
    const int steps = last - first + EXTRA;
    const int row0 = (DGRAD ? first - EXTRA : first) * IN_ROWS + down.shift;

    // Steps whose rows all lie above the image add nothing to empty sums, those below it only let rows leave.
    const int above = row0 < 0 ? -row0 / IN_ROWS : 0, inside = (in_h - row0 + IN_ROWS - 1) / IN_ROWS;
    const int start = above < EXTRA ? above : EXTRA, stop = inside < steps ? inside : steps;

    Rows ring(memory);
    ring.start(
        p.gathered + n * p.gathered_n + down.met * p.gathered_h + across.met * p.gathered_w, p.gathered_h * DILATION_H,
        p.gathered_w * DILATION_W, in_h, in_w, (int)p.channels_in, row0 + start * IN_ROWS,
        column_block * TILES * STEP_W + BEFORE + across.shift, channel_block * CHANNELS_IN
    );

    {  // the block's filters as they lie in memory
        const Filter* from = p.filter + (long long)channel_block * SLAB;
        const long long left = p.filter_elements - (long long)channel_block * SLAB;
        for (int i = threadIdx.x * FILTER_CHUNK; i < SLAB; i += THREADS * FILTER_CHUNK)
            copy_async<FILTER_CHUNK * (int)sizeof(Filter)>(slab + i, i < left ? from + i : p.filter, i < left);
    }
    commit_copies();
    #pragma unroll
    for (int i = 0; i < STAGES - TOGETHER; ++i) {
        if (start + i < stop) ring.fetch(i);
        commit_copies();
    }

    const int tile = (int)threadIdx.x / LANES, lane = (int)threadIdx.x - tile * LANES;
    const int local = lane * V, channel = channel_block * CHANNELS_OUT + local;
    const int local_in = local / GROUP_OUT * GROUP_IN;
    const int column0 = (column_block * TILES + tile) * TW + (int)p.out_column;
    const bool active = tile < TILES && channel < (int)p.channels_out && column0 < out_w;

    await_copies<STAGES - TOGETHER>();
    __syncthreads();
    Accum weight[IN_REGISTERS ? R : 1][IN_REGISTERS ? S : 1][GROUP_IN][V];
    if constexpr (IN_REGISTERS) {
        if (active) {
            #pragma unroll
            for (int r = 0; r < R; ++r)
                #pragma unroll
                for (int s = 0; s < S; ++s)
                    #pragma unroll
                    for (int c = 0; c < GROUP_IN; ++c)
                        #pragma unroll
                        for (int v = 0; v < V; ++v)
                            weight[r][s][c][v] = widen<Accum>(slab[filter_offset(p, local + v, c, r, s)]);
        }
    } else {  // [r][s][c][output channel]: a thread's V lie next to each other
        for (int i = threadIdx.x; i < R * S * GROUP_IN * CHANNELS_OUT; i += THREADS) {
            const int o = i % CHANNELS_OUT, c = i / CHANNELS_OUT % GROUP_IN, tap = i / (CHANNELS_OUT * GROUP_IN);
            table[i] = widen<Accum>(slab[filter_offset(p, o, c, tap / S, tap % S)]);
        }
    }

    ColumnOperands kept[V / WIDTH];
    if (active)
        #pragma unroll
        for (int v = 0; v < V; v += WIDTH) {
            const int at[4] = {n, channel + v, 0, column0 * DILATION_W + across.own};
            load_column_operands(p, at, kept[v / WIDTH]);
        }

    Accum sum[WINDOW][TW][V];
    #pragma unroll
    for (int k = 0; k < WINDOW; ++k)
        #pragma unroll
        for (int t = 0; t < TW; ++t)
            #pragma unroll
            for (int v = 0; v < V; ++v) sum[k][t][v] = (Accum)0;

    // A row is complete after its last step: it goes through the epilogue, and the window moves on.
    auto leave = [&](int step) {
        if (step >= EXTRA) {
            #pragma unroll
            for (int k = 0; k < OUT_ROWS; ++k) {
                const int out = (first + step - EXTRA) * OUT_ROWS + k + (int)p.out_row;
                if ((unsigned int)out >= (unsigned int)out_h) continue;
                #pragma unroll
                for (int t = 0; t < TW; ++t) {
                    if (!EXACT && (unsigned int)(column0 + t) >= (unsigned int)out_w) continue;
                    #pragma unroll
                    for (int v = 0; v < V; v += WIDTH) {
                        const int at[4] = {
                            n, channel + v, out * DILATION_H + down.own, (column0 + t) * DILATION_W + across.own
                        };
                        Accum acc[WIDTH];
                        #pragma unroll
                        for (int e = 0; e < WIDTH; ++e) acc[e] = sum[k][t][v + e];
                        epilogue(p, at, kept[v / WIDTH], acc);
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
                    sum[k][t][v] = k + OUT_ROWS < WINDOW ? sum[k + OUT_ROWS < WINDOW ? k + OUT_ROWS : 0][t][v] : (Accum)0;
    };

    // The products of the row(s) of a step.
    auto add = [&](int slot) {
        #pragma unroll
        for (int u = 0; u < IN_ROWS; ++u) {
            if (u >= R) continue;
            const Gathered* const here = ring.at(slot, u, tile * STEP_W, local_in);
            if constexpr (IN_REGISTERS && GROUP_IN == 1) {
                #pragma unroll
                for (int i = 0; i < IW; ++i) {
                    bool used = false;
                    #pragma unroll
                    for (int t = 0; t < TW; ++t) used |= column_tap(i, t) >= 0;
                    if (!used) continue;
                    Accum x[IV];
                    #pragma unroll
                    for (int c = 0; c < IV; c += LV) {
                        const Vec<Gathered, LV> pack = load_vec<LV>(here + i * CHANNELS_IN + c);
                        #pragma unroll
                        for (int e = 0; e < LV; ++e) x[c + e] = widen<Accum>(pack.at[e]);
                    }
                    #pragma unroll
                    for (int k = 0; k < WINDOW; ++k)
                        #pragma unroll
                        for (int t = 0; t < TW; ++t) {
                            const int r = row_tap(u, k), s = column_tap(i, t);
                            if (r < 0 || s < 0) continue;
                            #pragma unroll
                            for (int v = 0; v < V; ++v)
                                multiply_add(sum[k][t][v], x[V <= GROUP_OUT ? 0 : v / GROUP_OUT], weight[r][s][0][v]);
                        }
                }
            } else {
                Accum x[IW][IV];
                #pragma unroll
                for (int i = 0; i < IW; ++i)
                    #pragma unroll
                    for (int c = 0; c < IV; c += LV) {
                        const Vec<Gathered, LV> pack = load_vec<LV>(here + i * CHANNELS_IN + c);
                        #pragma unroll
                        for (int e = 0; e < LV; ++e) x[i][c + e] = widen<Accum>(pack.at[e]);
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
                            if constexpr (IN_REGISTERS) {
                                #pragma unroll
                                for (int v = 0; v < V; ++v) w[v] = weight[r][s][c][v];
                            } else {
                                const Vec<Accum, V> pack =
                                    load_vec<V>(table + ((r * S + s) * GROUP_IN + c) * CHANNELS_OUT + local);
                                #pragma unroll
                                for (int v = 0; v < V; ++v) w[v] = pack.at[v];
                            }
                            #pragma unroll
                            for (int t = 0; t < TW; ++t) {
                                const int i = tap_column(s, t);
                                if (i < 0) continue;
                                #pragma unroll
                                for (int v = 0; v < V; ++v)
                                    multiply_add(
                                        sum[k][t][v], x[i][V <= GROUP_OUT ? c : v / GROUP_OUT * GROUP_IN + c], w[v]
                                    );
                            }
                        }
            }
        }
    };

    int slot = 0, target = STAGES - TOGETHER;  // of the next step, and of the one that is fetched next
    #pragma unroll 1
    for (int step = start; step < stop; step += TOGETHER) {
        await_copies<STAGES - 2 * TOGETHER>();
        __syncthreads();  // these steps are there for all, and all have left the slots that are filled next
        #pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (step + STAGES - TOGETHER + i < stop) ring.fetch(target);
            commit_copies();
            target = target + 1 == STAGES ? 0 : target + 1;
        }
        if (active) {
            #pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                if (i > 0 && step + i >= stop) break;
                add(slot + i < STAGES ? slot + i : slot + i - STAGES);
                leave(step + i);
            }
        }
        slot = slot + TOGETHER < STAGES ? slot + TOGETHER : slot + TOGETHER - STAGES;
    }
    if (active) {
        #pragma unroll 1
        for (int step = start > stop ? start : stop; step < steps; ++step) leave(step);
    }
    await_copies<0>();
}
