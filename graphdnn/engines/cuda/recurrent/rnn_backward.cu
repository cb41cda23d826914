// rnn_backward computes the data gradient of one layer of a recurrent network, from its last time step to its first, in both
// directions (blockIdx.y). The gradient of a state is dy plus the product of W_h with all gate gradients of the next step.
// One more iteration after the last step computes the gradients of the initial states.
//
// Tile:    TILE sequences x TILE units for a CTA. CTAs are persistent.
// Memory:  `dgates` receives the gate gradients; WEIGHTS_STATIONARY: the CTA's part of W_h stays in shared memory for all steps.
// Threads: THREADS = TILE * TILE, one (sequence, unit) for each thread in the epilogue. A grid barrier ends every step.
//
// Required constants (from the generator):
//   CELL: RELU, TANH, LSTM or GRU; GATES: gates of a unit, 1, 3 or 4; RESERVE_VALUES: values of a unit in the reserve space.
//   GATE_GRADIENTS: gate gradients of a unit: GATES, or 4 for a GRU.
//   THREADS: threads of a CTA; TILE: extent of a tile; DEPTH: elements of a K chunk; WEIGHTS_STATIONARY: flag, see above.

#include "grid_barrier.cuh"
#include "rnn_rows.cuh"
#include "rnn_states.cuh"
#include "rnn_cells.cuh"
#include "rnn_tile.cuh"

// The row that time step s reads: the row of the same sequence in the step before it in this direction, or -1.
__device__ __forceinline__ int row_done(const Params& p, int s, int t, int b, bool back) {
    if (s < (int)p.steps) return row_before(p, t, b, !back);
    return back ? last_row(p, b) : b;
}

// The gates in the order of the recurrent matrix: the third gate of a GRU has its own gradient there.
__device__ __forceinline__ int of_state(int gate) { return CELL == GRU && gate == 2 ? 3 : gate; }

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_backward(const __grid_constant__ Params p) {
    extern __shared__ uint4 words[];
    const int direction = (int)blockIdx.y, hidden = (int)p.hidden, steps = (int)p.steps;
    const bool back = direction == 1;
    const long long pseudo = p.pseudo + direction;
    const Weight* state_matrix = p.w + p.matrix_at[direction] * p.w_step;
    Compute* dgates = p.dgates + pseudo * p.rows * GATE_GRADIENTS * p.hidden * p.dgates_step;
    const Compute* reserved = p.reserve;
    if (RESERVE_VALUES > 0) reserved += pseudo * p.rows * RESERVE_VALUES * p.hidden * p.reserve_step;
    const int across = (hidden + TILE - 1) / TILE, tiles = across * (((int)p.batch + TILE - 1) / TILE);
    const int mine_b = (int)threadIdx.x / TILE, mine_u = (int)threadIdx.x % TILE;
    const int of_gate = (hidden + DEPTH - 1) / DEPTH * DEPTH, depth = GATES * of_gate;  // each gate in whole chunks
    const Tile<1> product((unsigned char*)words, depth);
    const auto fill = [&](int first_u, int chunk) {
        const int g = chunk / of_gate, k0 = chunk - g * of_gate;
        for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            const int k = k0 + i / TILE, column = first_u + i % TILE;
            product.matrix(0, i % TILE, chunk, i / TILE) = k < hidden && column < hidden
                ? widen<Compute>(state_matrix[((long long)(g * hidden + k) * hidden + column) * p.w_step]) : Compute(0);
        }
    };
    if (WEIGHTS_STATIONARY && (int)blockIdx.x < tiles)
        for (int chunk = 0; chunk < depth; chunk += DEPTH) fill((int)blockIdx.x % across * TILE, chunk);
    for (int s = 0; s <= steps; ++s) {
        const int t = back ? s : steps - 1 - s;
        const int batch = s < steps ? sequences(p, t) : (int)p.batch;
        if (s == steps && !p.dhx) break;
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const int first_b = tile / across * TILE, first_u = tile % across * TILE;
            if (first_b >= batch) break;
            const int b = first_b + mine_b, u = first_u + mine_u;
            const bool is_mine = b < batch && u < hidden;
            const int previous_row = b < batch ? row_done(p, s, t, b, back) : -1;
            const Compute* const gradients = dgates + (long long)previous_row * GATE_GRADIENTS * hidden * p.dgates_step;
            Compute sums[1];
            product.product(
                depth,
                [&](int chunk, int k) {
                    const int g = chunk / of_gate, at = chunk - g * of_gate + k;
                    if (previous_row < 0 || at >= hidden) return Compute(0);
                    return gradients[((long long)of_state(g) * hidden + at) * p.dgates_step];
                },
                [&](int chunk) { fill(first_u, chunk); }, sums
            );
            Compute sum = sums[0];
            if (!is_mine) continue;
            const long long place = (direction * p.batch + b) * p.hidden + u;
            const bool begins = previous_row < 0;
            if (begins) sum = p.dhy ? widen<Compute>(state_of(p.dhy, p.dhy_stride, pseudo, b, u)) : Compute(0);
            else if (CELL == GRU) sum += p.bypass[place];
            if (s == steps) {
                state_of(p.dhx, p.dhx_stride, pseudo, b, u) = narrow<StateOut>(sum);
                continue;
            }
            const long long row = first_row(p, t) + b, column = direction * p.hidden + u;
            sum += widen<Compute>(p.leaving[p.leaving_at + row * p.leaving_stride[0] + column * p.leaving_stride[1]]);
            const int before = row_before(p, t, b, back);
            Compute dc = Compute(0), c = Compute(0), h = Compute(0), output = Compute(0), reserve[RESERVE_REGISTERS];
            if constexpr (CELL == LSTM) {
                if (!begins) dc = p.dcells[place];
                else if (p.dcy) dc = widen<Compute>(state_of(p.dcy, p.dcy_stride, pseudo, b, u));
                if (before >= 0) c = reserved[(((long long)before * RESERVE_VALUES + 4) * hidden + u) * p.reserve_step];
                else if (p.cx) c = widen<Compute>(state_of(p.cx, p.cx_stride, pseudo, b, u));
            }
            if constexpr (CELL == GRU) {
                if (before >= 0) h = widen<Compute>(p.out[p.out_at + before * p.out_stride[0] + column * p.out_stride[1]]);
                else if (p.hx) h = widen<Compute>(state_of(p.hx, p.hx_stride, pseudo, b, u));
            }
            if constexpr (CELL == RELU || CELL == TANH)
                output = widen<Compute>(p.out[p.out_at + row * p.out_stride[0] + column * p.out_stride[1]]);
            #pragma unroll
            for (int i = 0; i < RESERVE_VALUES; ++i) reserve[i] = reserved[((row * RESERVE_VALUES + i) * hidden + u) * p.reserve_step];
            Compute gradient[GATE_GRADIENTS];
            const Compute bypass = cell_gradient(sum, dc, output, h, c, reserve, gradient);
            if constexpr (CELL == GRU) p.bypass[place] = bypass;
            if constexpr (CELL == LSTM) p.dcells[place] = dc;
            #pragma unroll
            for (int i = 0; i < GATE_GRADIENTS; ++i)
                dgates[((row * GATE_GRADIENTS + i) * hidden + u) * p.dgates_step] = gradient[i];
            const bool is_last = back ? row_before(p, t, b, true) < 0 : t == 0;
            if (CELL == LSTM && is_last && p.dcx)
                state_of(p.dcx, p.dcx_stride, pseudo, b, u) = narrow<CellOut>(dc);
        }
        if (s == steps) break;
        arrive(p.arrived + direction);
        wait_for(p.arrived + direction, (unsigned int)(s + 1) * gridDim.x);
    }
}
