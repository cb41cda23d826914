// rnn_persistent_backward computes the data gradient of one layer of a recurrent network on tensor cores. CTAs, warps and operands
// are those of rnn_persistent.cu, but K runs over all gates of all units, and CTAs exchange gate gradients, rounded to 16 bits.
// The gate gradients are also stored unrounded. One more iteration after the last step computes the gradients of the
// initial states.
//
// Tile:    ROWS sequences (blockIdx.y) x UNITS units (blockIdx.x), in one direction (blockIdx.z).
// Memory:  W_h stays in registers, or with STAGED in shared memory. A word that is not ABSENT has been written.
// Threads: a warp has WARP_UNITS * 32 units with all of their gates and reads AT_ONCE blocks of 32 values at a time.
//
// Required constants (from the generator):
//   CELL: RELU, TANH, LSTM or GRU; GATES: gates of a unit, 1, 3 or 4; RESERVE_VALUES: values of a unit in the reserve space.
//   GATE_GRADIENTS: gate gradients of a unit: GATES, or 4 for a GRU; WHOLE: 1 if the warps cover the hidden size exactly.
//   THREADS: threads of a CTA, 256; UNITS: units of a CTA, 16 or 32; ROWS: sequences of a CTA, 8, 16 or 32.
//   WARP_UNITS: blocks of 32 units of a warp; AT_ONCE: a divisor or a multiple of WARP_UNITS; STAGED: flag, see above.

#include "rnn_rows.cuh"
#include "rnn_states.cuh"
#include "rnn_cells.cuh"
#include "rnn_exchange.cuh"
#include "rnn_operands.cuh"

constexpr int TILES = UNITS / 8, PITCH = UNITS + 4, WARPS = THREADS / 32, BLOCKS_OF_K = GATES * WARP_UNITS;
constexpr int TAIL = AT_ONCE == 1 ? 1 : AT_ONCE > WARP_UNITS ? WARP_UNITS : AT_ONCE / 2;
constexpr int PAIRS_PER_THREAD = ROWS * UNITS / THREADS;  // pairs of a sequence and a unit for a thread

// A GRU stores the third gate's recurrent gradient first. Then the recurrent gradients are contiguous, and so are the input's.
__device__ __forceinline__ int exchange_position(int value) { return CELL == GRU ? (value + 1) % 4 : value; }
__device__ __forceinline__ int gate_at(int place) { return CELL == GRU ? (place + 2) % 3 : place; }

// The values of one pair of a sequence and a unit in a row.
struct Row {
    float leaving, output, reserve[RESERVE_REGISTERS];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_persistent_backward(const __grid_constant__ Params p) {
    extern __shared__ float partial[];  // [STAGED ? 1 : 2][WARPS][ROWS][PITCH], and weights
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, group = lane / 4, place = lane % 4;
    const int hidden = (int)p.hidden, steps = (int)p.steps, all = (int)p.batch, direction = (int)blockIdx.z;
    const int first_unit = (int)blockIdx.x * UNITS, first_b = (int)blockIdx.y * ROWS;
    const int first_k = warp * WARP_UNITS * 32 + place * 8;  // of a gate
    const bool back = direction == 1;  // the gradient of the backward direction runs forward in time
    const long long pseudo = p.pseudo + direction, width = p.directions * GATE_GRADIENTS * p.hidden;
    State* handed = (State*)p.shared + direction * GATE_GRADIENTS * p.hidden;

    // Column `unit` of the recurrent matrix; elements along K are rows of it.
    Weights<BLOCKS_OF_K, TILES> weights((uint4*)(partial + (STAGED ? 1 : 2) * WARPS * ROWS * PITCH));
    {
        const State* matrix = p.w + p.matrix_at[direction] * p.w_step;
        const bool is_aligned = p.w_step == 1 && ((unsigned long long)matrix & 15) == 0;
        State* const transposed = (State*)partial + warp * 32 * 8;  // 32 rows of 8 columns, for a transpose among lanes
        #pragma unroll
        for (int kb = 0; kb < BLOCKS_OF_K; ++kb)
            #pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                const int k = (warp * WARP_UNITS + kb % WARP_UNITS) * 32 + lane;
                const long long at = ((long long)gate_at(kb / WARP_UNITS) * hidden + k) * hidden + first_unit + tile * 8;
                *(uint4*)(transposed + lane * 8) = k < hidden ? load_eight(p, matrix, at, is_aligned) : make_uint4(0, 0, 0, 0);
                __syncwarp();
                Vec<State, 8> vec;
                #pragma unroll
                for (int e = 0; e < 8; ++e) vec[e] = transposed[(place * 8 + e) * 8 + group];
                weights.set(kb, tile, *(const uint4*)&vec);
                __syncwarp();
            }
        __syncthreads();
    }
    const int unit = first_unit + (int)threadIdx.x % UNITS, mine = (int)threadIdx.x / UNITS;
    const int row_stride = THREADS / UNITS, my_b = first_b + mine;
    const Index column = (Index)direction * hidden + unit, out_row = (Index)p.out_stride[0], leaving_row = (Index)p.leaving_stride[0];
    const Index out_at = (Index)p.out_at + my_b * out_row + column * (Index)p.out_stride[1];
    const Index leaving_at = (Index)p.leaving_at + my_b * leaving_row + column * (Index)p.leaving_stride[1];
    const Index reserve_value = (Index)p.hidden * (Index)p.reserve_step, reserve_row = RESERVE_VALUES * reserve_value;
    const Index reserve_at = ((Index)pseudo * (Index)p.rows + my_b) * reserve_row + unit * (Index)p.reserve_step;
    const Index dgates_value = (Index)p.hidden * (Index)p.dgates_step, dgates_row = GATE_GRADIENTS * dgates_value;
    const Index dgates_at = ((Index)pseudo * (Index)p.rows + my_b) * dgates_row + unit * (Index)p.dgates_step;
    const Index handed_at = (Index)(1 + my_b) * (Index)width + unit;
    const auto read = [&](const TimeStep& turn, Row (&to)[PAIRS_PER_THREAD]) {
        #pragma unroll
        for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
            to[i] = {};
            if (my_b + i * row_stride >= turn.batch) continue;
            const Index row = turn.start + i * row_stride;
            to[i].leaving = widen<float>(p.leaving[leaving_at + row * leaving_row]);
            if constexpr (CELL != LSTM) to[i].output = widen<float>(p.out[out_at + row * out_row]);
            #pragma unroll
            for (int v = 0; v < RESERVE_VALUES; ++v) to[i].reserve[v] = p.reserve[reserve_at + row * reserve_row + v * reserve_value];
        }
    };
    float dh[PAIRS_PER_THREAD], dc[PAIRS_PER_THREAD];  // gradients from later time steps
    float h[PAIRS_PER_THREAD], c[PAIRS_PER_THREAD];    // initial states
    #pragma unroll
    for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
        const int b = first_b + mine + i * (THREADS / UNITS);
        dh[i] = dc[i] = h[i] = c[i] = 0.0f;
        if (b >= all) continue;
        if (p.dhy) dh[i] = widen<float>(state_of(p.dhy, p.dhy_stride, pseudo, b, unit));
        if (CELL == LSTM && p.dcy) dc[i] = widen<float>(state_of(p.dcy, p.dcy_stride, pseudo, b, unit));
        if (CELL == GRU && p.hx) h[i] = widen<float>(state_of(p.hx, p.hx_stride, pseudo, b, unit));
        if (CELL == LSTM && p.cx) c[i] = widen<float>(state_of(p.cx, p.cx_stride, pseudo, b, unit));
    }
    TimeStep before{0, 0}, now = time_step_at(p, 0, !back), next = time_step_at(p, 1, !back);
    Row row_now[PAIRS_PER_THREAD], row_next[PAIRS_PER_THREAD];
    read(now, row_now);
    const int turns = p.dhx ? steps + 1 : steps;
    for (int s = 0; s < turns; ++s) {
        const TimeStep after = time_step_at(p, s + 2, !back);
        read(next, row_next);
        const bool is_end = s == steps;
        const int batch = is_end ? all : now.batch;
        if (first_b < batch) {
            float sum[ROWS / 8][TILES / 2][4];
            clear(sum);
            // Sequences that are absent or begin here read the first row, which is 0.
            const State* rows[ROWS / 8];
            #pragma unroll
            for (int r = 0; r < ROWS / 8; ++r) {
                const int b = first_b + r * 8 + group;
                int previous_row = -1;
                if (b < batch && is_end) previous_row = back ? last_row(p, b) : b;
                else if (b < batch && b < before.batch) previous_row = before.start + b;
                rows[r] = handed + (Index)(1 + previous_row) * (Index)width + (WHOLE ? first_k : 0);
            }
            #pragma unroll
            for (int first = 0; first < BLOCKS_OF_K; first += AT_ONCE) {
                uint4 state[ROWS / 8 * AT_ONCE];
                poll_values<AT_ONCE, TAIL, WARP_UNITS>(rows, first_k, hidden, first, state);
                add_products<AT_ONCE>(sum, state, weights, first);
            }
            float* parts = partial + (STAGED ? 0 : s % 2) * WARPS * ROWS * PITCH;
            store_partial_sums<TILES, PITCH>(sum, parts);
            #pragma unroll
            for (int i = 0; i < PAIRS_PER_THREAD; ++i) {
                const int r = mine + i * row_stride, b = first_b + r;
                // Before its first step a sequence has a zero product, and dh of its last state. Otherwise dh bypasses the
                // recurrent matrix.
                float total = dh[i];
                #pragma unroll
                for (int w = 0; w < WARPS; ++w) total += parts[(w * ROWS + r) * PITCH + (int)threadIdx.x % UNITS];
                if (is_end) {
                    if (b < all) state_of(p.dhx, p.dhx_stride, pseudo, b, unit) = narrow<StateOut>(total);
                    continue;
                }
                const bool is_last = b >= next.batch;
                const float h_before = is_last ? h[i] : row_next[i].output;
                const float c_before = is_last ? c[i] : row_next[i].reserve[RESERVE_VALUES > 0 ? RESERVE_VALUES - 1 : 0];
                float gradient[GATE_GRADIENTS], dcell = dc[i];
                const float bypass = cell_gradient(
                    total + row_now[i].leaving, dcell, row_now[i].output, h_before, c_before, row_now[i].reserve, gradient
                );
                const Index row = now.start + i * row_stride;
                #pragma unroll
                for (int v = 0; v < GATE_GRADIENTS; ++v)
                    publish_four(narrow<State>(gradient[v]).bits, (void*)(handed + handed_at + row * (Index)width + exchange_position(v) * hidden), b < batch);
                if (b >= batch) continue;
                #pragma unroll
                for (int v = 0; v < GATE_GRADIENTS; ++v) p.dgates[dgates_at + row * dgates_row + v * dgates_value] = gradient[v];
                dh[i] = bypass;
                dc[i] = dcell;
                if (CELL == LSTM && is_last && p.dcx)
                    state_of(p.dcx, p.dcx_stride, pseudo, b, unit) = narrow<CellOut>(dcell);
            }
        }
        before = now;
        now = next;
        next = after;
        #pragma unroll
        for (int i = 0; i < PAIRS_PER_THREAD; ++i) row_now[i] = row_next[i];
    }
}
