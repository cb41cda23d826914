// rnn_persistent computes one layer of a recurrent network over all time steps on tensor cores; all CTAs run at the same time.
//
// Tile:    ROWS sequences (blockIdx.y) x UNITS units with all of their gates (blockIdx.x), in one direction (blockIdx.z).
//          Columns of the MMA tile are units, with the gates of a unit side by side.
// Memory:  the CTA's part of W_h stays in registers, or with STAGED in shared memory, for all steps. CTAs exchange states
//          through global memory; a word that is not ABSENT has been written, so no barrier is needed.
// Threads: the warps divide K (the units of the previous state). Each warp starts when its states have arrived. Partial
//          sums are added in shared memory; then each thread computes ROWS * UNITS / THREADS cells.
//
// Required constants (from the generator):
//   CELL: RELU, TANH, LSTM or GRU; GATES: gates of a unit, 1, 3 or 4; RESERVE_VALUES: values of a unit in the reserve space.
//   GATE_GRADIENTS: gate gradients of a unit, for the backward kernels only.
//   THREADS: threads of a CTA, 256; UNITS: units of a CTA, 16 or 32; ROWS: sequences of a CTA, 8, 16 or 32.
//   BLOCKS_OF_K: blocks of 32 values of K for a warp, 1 or more; WHOLE: 1 if they cover the hidden size exactly.
//   STAGED: flag, see above; SKIP: 1 if the layer has no input matrix and x is added to each gate.

#include "rnn_states.cuh"
#include "rnn_cells.cuh"
#include "rnn_exchange.cuh"
#include "rnn_operands.cuh"

constexpr int COLUMNS = GATES * UNITS, TILES = COLUMNS / 8, PITCH = COLUMNS + 4, WARPS = THREADS / 32;
constexpr int TAIL = BLOCKS_OF_K == 1 ? 1 : BLOCKS_OF_K / 2;
constexpr int PAIRS_PER_THREAD = ROWS * UNITS / THREADS;  // pairs of a sequence and a unit for a thread

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_persistent(const __grid_constant__ Params p) {
    extern __shared__ float partial[];  // [STAGED ? 1 : 2][WARPS][ROWS][PITCH], and weights
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, group = lane / 4, place = lane % 4;
    const int hidden = (int)p.hidden, steps = (int)p.steps, all = (int)p.batch, direction = (int)blockIdx.z;
    const int first_unit = (int)blockIdx.x * UNITS, first_b = (int)blockIdx.y * ROWS, first_k = warp * BLOCKS_OF_K * 32 + place * 8;
    const bool back = direction == 1;
    const long long width = p.directions * p.hidden, pseudo = p.pseudo + direction;

    Weights<BLOCKS_OF_K, TILES> weights((uint4*)(partial + (STAGED ? 1 : 2) * WARPS * ROWS * PITCH));
    {
        const State* matrix = p.w + p.matrix_at[direction] * p.w_step;
        const bool is_aligned = p.w_step == 1 && ((unsigned long long)matrix & 15) == 0;
        #pragma unroll
        for (int kb = 0; kb < BLOCKS_OF_K; ++kb)
            #pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                const int column = tile * 8 + group, row = column % GATES * hidden + first_unit + column / GATES;
                const int k = first_k + kb * 32;
                weights.set(kb, tile, k < hidden ? load_eight(p, matrix, (long long)row * hidden + k, is_aligned) : make_uint4(0, 0, 0, 0));
            }
    }
    // The pairs of this thread: the same unit, and sequences with a stride of THREADS / UNITS.
    const int unit = first_unit + (int)threadIdx.x % UNITS, mine = (int)threadIdx.x / UNITS;
    float h[PAIRS_PER_THREAD], c[PAIRS_PER_THREAD], input_bias[GATES], state_bias[GATES];
    {
        const State* bias = p.w + p.bias_at[direction] * p.w_step;
        #pragma unroll
        for (int g = 0; g < GATES; ++g) {
            input_bias[g] = widen<float>(bias[((long long)g * hidden + unit) * p.w_step]);
            state_bias[g] = widen<float>(bias[((long long)(GATES + g) * hidden + unit) * p.w_step]);
        }
        #pragma unroll
        for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
            const int b = first_b + mine + i * (THREADS / UNITS);
            h[i] = c[i] = 0.0f;
            if (b < all && p.hx) h[i] = widen<float>(state_of(p.hx, p.hx_stride, pseudo, b, unit));
            if (b < all && p.cx) c[i] = widen<float>(state_of(p.cx, p.cx_stride, pseudo, b, unit));
        }
    }
    const State* states = (const State*)p.shared + direction * p.hidden;
    // The input is loaded one step ahead.
    const int row_stride = THREADS / UNITS, my_b = first_b + mine;
    const Index in_row = (Index)p.hidden * GATES, in_at = ((Index)direction * (Index)p.rows + my_b) * in_row + unit;
    const Index x_row = (Index)p.x_stride[0], x_at = my_b * x_row + unit * (Index)p.x_stride[1];
    const auto read_input = [&](const TimeStep& turn, float (&to)[PAIRS_PER_THREAD][GATES]) {
        #pragma unroll
        for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
            const bool is_stored = my_b + i * row_stride < turn.batch;
            #pragma unroll
            for (int g = 0; g < GATES; ++g) {
                to[i][g] = 0.0f;
                if constexpr (SKIP) { if (is_stored) to[i][g] = widen<float>(p.x[x_at + (turn.start + i * row_stride) * x_row]); }
                else if (is_stored) to[i][g] = p.entering[in_at + (turn.start + i * row_stride) * in_row + g * (Index)p.hidden];
            }
        }
    };
    const Index column = (Index)direction * hidden + unit, out_row = (Index)p.out_stride[0];
    const Index out_at = (Index)p.out_at + my_b * out_row + column * (Index)p.out_stride[1];
    const Index reserve_value = (Index)p.hidden * (Index)p.reserve_step, reserve_row = RESERVE_VALUES * reserve_value;
    const Index reserve_at = ((Index)pseudo * (Index)p.rows + my_b) * reserve_row + unit * (Index)p.reserve_step;
    const Index handed_at = (Index)(all + my_b) * (Index)width + unit;
    TimeStep before{0, 0}, now = time_step_at(p, 0, back), next = time_step_at(p, 1, back);
    float input[PAIRS_PER_THREAD][GATES];
    read_input(now, input);
    for (int s = 0; s < steps; ++s) {
        const TimeStep after = time_step_at(p, s + 2, back);
        float ahead[PAIRS_PER_THREAD][GATES];
        read_input(next, ahead);
        const int batch = now.batch;
        if (first_b < batch) {
            // Absent sequences read an existing row, and their sums are unused.
            const State* rows[ROWS / 8];
            #pragma unroll
            for (int r = 0; r < ROWS / 8; ++r) {
                const int b = first_b + r * 8 + group, row = b < before.batch ? all + before.start + b : b;
                rows[r] = states + (Index)(b < batch ? row : 0) * (Index)width + (WHOLE ? first_k : 0);
            }
            uint4 state[ROWS / 8 * BLOCKS_OF_K];
            poll_values<BLOCKS_OF_K, TAIL, BLOCKS_OF_K>(rows, first_k, hidden, 0, state);
            float sum[ROWS / 8][TILES / 2][4];
            clear(sum);
            add_products<BLOCKS_OF_K>(sum, state, weights, 0);
            float* parts = partial + (STAGED ? 0 : s % 2) * WARPS * ROWS * PITCH;
            store_partial_sums<TILES, PITCH>(sum, parts);
            #pragma unroll
            for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
                const int r = mine + i * row_stride, b = first_b + r;
                float of_state[GATES], reserve[RESERVE_REGISTERS];
                #pragma unroll
                for (int g = 0; g < GATES; ++g) of_state[g] = state_bias[g];
                const float* const from = parts + r * PITCH + (int)threadIdx.x % UNITS * GATES;
                #pragma unroll
                for (int w = 0; w < WARPS; ++w) {
                    const Vec<float, GATES == 3 ? 1 : GATES> some = load_vec<GATES == 3 ? 1 : GATES>(from + w * ROWS * PITCH);
                    #pragma unroll
                    for (int g = 0; g < GATES; ++g) of_state[g] += GATES == 3 ? from[w * ROWS * PITCH + g] : some[g % (GATES == 3 ? 1 : GATES)];
                }
                float candidate = h[i], cell = c[i];
                #pragma unroll
                for (int g = 0; g < GATES; ++g) input[i][g] += input_bias[g];
                cell_step(input[i], of_state, candidate, cell, reserve);
                const State rounded = narrow<State>(candidate);
                candidate = widen<float>(rounded);
                publish_four(
                    rounded.bits, (void*)(states + handed_at + (Index)(now.start + i * row_stride) * (Index)width), b < batch
                );
                if (b >= batch) continue;
                h[i] = candidate;
                c[i] = cell;
                const Index row = now.start + i * row_stride;
                if (p.out) p.out[out_at + row * out_row] = narrow<Out>(candidate);
                if (RESERVE_VALUES > 0 && p.reserve) {
                    #pragma unroll
                    for (int v = 0; v < RESERVE_VALUES; ++v) p.reserve[reserve_at + row * reserve_row + v * reserve_value] = reserve[v];
                }
                const bool is_last = back ? s == steps - 1 : b >= next.batch;
                if (is_last && p.hy) state_of(p.hy, p.hy_stride, pseudo, b, unit) = narrow<StateOut>(candidate);
                if (CELL == LSTM && is_last && p.cy)
                    state_of(p.cy, p.cy_stride, pseudo, b, unit) = narrow<CellOut>(cell);
            }
        }
        before = now;
        now = next;
        next = after;
        #pragma unroll
        for (int i = 0; i < PAIRS_PER_THREAD; ++i)
            #pragma unroll
            for (int g = 0; g < GATES; ++g) input[i][g] = ahead[i][g];
    }
}
