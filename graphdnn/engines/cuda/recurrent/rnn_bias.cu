// rnn_bias computes the gradients of the biases: sums of gate gradients over all rows. The biases of the input come first, then
// those of the state; they are equal except for the third gate of a GRU.
//
// Tile:    COLUMNS gate gradients for a CTA.
// Memory:  gate gradients are [row][value][unit]; adjacent threads read adjacent units.
// Threads: THREADS / COLUMNS threads share a column; their sums are added in order through shared memory.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA; COLUMNS: columns of a CTA, a divisor of THREADS.
//   CELL, GATES: the cell and its gates; GATE_GRADIENTS: gate gradients of a unit: GATES, or 4 for a GRU.

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_bias(const __grid_constant__ Params p) {
    constexpr int THREADS_PER_COLUMN = THREADS / COLUMNS;
    __shared__ Compute sums[THREADS_PER_COLUMN][COLUMNS];
    const int column_thread = (int)threadIdx.x / COLUMNS;
    const long long column = (long long)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS, width = GATE_GRADIENTS * p.hidden;
    Compute sum = Compute(0);
    if (column < width) {
        const Compute* from = p.dgates + p.dgates_at + column * p.dgates_step;
        #pragma unroll 8
        for (long long row = column_thread; row < p.rows; row += THREADS_PER_COLUMN) sum += from[row * width * p.dgates_step];
    }
    sums[column_thread][threadIdx.x % COLUMNS] = sum;
    __syncthreads();
    if (column_thread > 0 || column >= width) return;
    #pragma unroll
    for (int i = 1; i < THREADS_PER_COLUMN; ++i) sum += sums[i][threadIdx.x];
    const long long value = column / p.hidden, unit = column % p.hidden;
    const bool is_of_input = value < GATES, is_of_state = CELL != GRU || value != 2;
    const Weight rounded = narrow<Weight>(sum);
    if (is_of_input) p.dw[(p.bias_at + column) * p.dw_step] = rounded;
    if (is_of_state) p.dw[(p.bias_at + (GATES + (value < 2 ? value : CELL == GRU ? 2 : value)) * p.hidden + unit) * p.dw_step] = rounded;
}
