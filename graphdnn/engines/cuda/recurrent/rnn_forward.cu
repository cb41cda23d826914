// rnn_forward computes one layer of a recurrent network over all time steps, in both directions (blockIdx.y):
// h_t = cell(x_t W_x + h_(t-1) W_h + biases). The product with x is computed before, in `entering`.
//
// Tile:    TILE sequences x TILE units with all of their gates for a CTA. CTAs are persistent; if there are more tiles than CTAs,
//          a CTA computes several tiles in each step.
// Memory:  WEIGHTS_STATIONARY: the CTA's columns of W_h stay in shared memory for all steps; otherwise chunks of DEPTH are staged.
// Threads: THREADS = TILE * TILE, one (sequence, unit) for each thread in the epilogue. A grid barrier ends every step, because
//          a step reads the whole state of the previous step.
//
// Required constants (from the generator):
//   CELL: RELU, TANH, LSTM or GRU; GATES: gates of a unit, 1, 3 or 4; RESERVE_VALUES: values of a unit in the reserve space.
//   GATE_GRADIENTS: gate gradients of a unit, for the backward kernels only.
//   THREADS: threads of a CTA; TILE: extent of a tile; DEPTH: elements of a K chunk; WEIGHTS_STATIONARY: flag, see above.
//   SKIP: 1 if the layer has no input matrix and x is added to each gate.

#include "grid_barrier.cuh"
#include "rnn_rows.cuh"
#include "rnn_states.cuh"
#include "rnn_cells.cuh"
#include "rnn_tile.cuh"

__device__ __forceinline__ Compute state_before(const Params& p, int direction, int row, int b, int unit) {
    if (row >= 0)
        return widen<Compute>(p.out[p.out_at + row * p.out_stride[0] + (direction * p.hidden + unit) * p.out_stride[1]]);
    if (!p.hx) return Compute(0);
    return widen<Compute>(state_of(p.hx, p.hx_stride, p.pseudo + direction, b, unit));
}

// The input's part of a gate, without the bias.
__device__ __forceinline__ Compute entering_of(const Params& p, int direction, int row, int gate, int unit) {
    if constexpr (SKIP) return widen<Compute>(p.x[row * p.x_stride[0] + unit * p.x_stride[1]]);
    else return p.entering[((direction * p.rows + row) * GATES + gate) * p.hidden + unit];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_forward(const __grid_constant__ Params p) {
    extern __shared__ uint4 words[];
    const int direction = (int)blockIdx.y, hidden = (int)p.hidden, steps = (int)p.steps;
    const int depth = (hidden + DEPTH - 1) / DEPTH * DEPTH;
    const bool back = direction == 1;
    const Weight *state_matrix = p.w + p.matrix_at[direction] * p.w_step, *bias = p.w + p.bias_at[direction] * p.w_step;
    const int across = (hidden + TILE - 1) / TILE, tiles = across * (((int)p.batch + TILE - 1) / TILE);
    const int mine_b = (int)threadIdx.x / TILE, mine_u = (int)threadIdx.x % TILE;
    const Tile<GATES> product((unsigned char*)words, depth);
    const auto fill = [&](int first_u, int chunk) {
        for (int i = (int)threadIdx.x; i < GATES * TILE * DEPTH; i += THREADS) {
            const int row = i / DEPTH, k = chunk + i % DEPTH, g = row / TILE, u = first_u + row % TILE;
            product.matrix(g, row % TILE, chunk, i % DEPTH) = u < hidden && k < hidden
                ? widen<Compute>(state_matrix[((long long)(g * hidden + u) * hidden + k) * p.w_step]) : Compute(0);
        }
    };
    if (WEIGHTS_STATIONARY && (int)blockIdx.x < tiles)
        for (int chunk = 0; chunk < depth; chunk += DEPTH) fill((int)blockIdx.x % across * TILE, chunk);
    for (int s = 0; s < steps; ++s) {
        const int t = back ? steps - 1 - s : s, start = first_row(p, t), batch = sequences(p, t);
        for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {
            const int first_b = tile / across * TILE, first_u = tile % across * TILE;
            if (first_b >= batch) break;
            const int b = first_b + mine_b, u = first_u + mine_u;
            const bool is_mine = b < batch && u < hidden;
            const int before = b < batch ? row_before(p, t, b, back) : -1;
            Compute state[GATES], input[GATES];
            product.product(
                depth,
                [&](int chunk, int k) {
                    return b < batch && chunk + k < hidden ? state_before(p, direction, before, b, chunk + k) : Compute(0);
                },
                [&](int chunk) { fill(first_u, chunk); }, state
            );
            if (!is_mine) continue;
            const int row = start + b;
            #pragma unroll
            for (int g = 0; g < GATES; ++g) {
                state[g] += widen<Compute>(bias[((GATES + g) * (long long)hidden + u) * p.w_step]);
                input[g] = entering_of(p, direction, row, g, u) + widen<Compute>(bias[(g * (long long)hidden + u) * p.w_step]);
            }
            Compute h = state_before(p, direction, before, b, u), c = Compute(0), reserve[RESERVE_REGISTERS];
            const long long cell = (direction * p.batch + b) * p.hidden + u, pseudo = p.pseudo + direction;
            if constexpr (CELL == LSTM) {
                if (before >= 0) c = p.cells[cell];
                else if (p.cx) c = widen<Compute>(state_of(p.cx, p.cx_stride, pseudo, b, u));
            }
            cell_step(input, state, h, c, reserve);
            if constexpr (CELL == LSTM) p.cells[cell] = c;
            const State rounded = narrow<State>(h);
            h = widen<Compute>(rounded);
            p.out[p.out_at + row * p.out_stride[0] + (direction * p.hidden + u) * p.out_stride[1]] = narrow<Out>(h);
            if (RESERVE_VALUES > 0 && p.reserve) {
                #pragma unroll
                for (int i = 0; i < RESERVE_VALUES; ++i)
                    p.reserve[(pseudo * p.rows * RESERVE_VALUES + (long long)row * RESERVE_VALUES + i) * p.hidden * p.reserve_step +
                              u * p.reserve_step] = reserve[i];
            }
            const bool is_last = back ? t == 0 : row_before(p, t, b, true) < 0;
            if (is_last && p.hy)
                state_of(p.hy, p.hy_stride, pseudo, b, u) = narrow<StateOut>(h);
            if (CELL == LSTM && is_last && p.cy)
                state_of(p.cy, p.cy_stride, pseudo, b, u) = narrow<CellOut>(c);
        }
        arrive(p.arrived + direction);
        wait_for(p.arrived + direction, (unsigned int)(s + 1) * gridDim.x);
    }
}
