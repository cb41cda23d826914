// Gradients of the biases: sums over all rows of what enters the gates, COLUMNS of them for a block, whose threads share the
// rows and join in order. The input's biases come first, then those of the state, which are the same but for the third gate
// of a GRU.

extern "C" __global__ void __launch_bounds__(THREADS, 1) rnn_bias(const __grid_constant__ Params p) {
    constexpr int LANES = THREADS / COLUMNS;
    __shared__ Compute sums[LANES][COLUMNS];
    const int lane = (int)threadIdx.x / COLUMNS;
    const long long column = (long long)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS, width = KEPT_GRADIENTS * p.hidden;
    Compute sum = Compute(0);
    if (column < width) {
        const Compute* from = p.found + p.found_at + column * p.found_step;
        #pragma unroll 8
        for (long long row = lane; row < p.rows; row += LANES) sum += from[row * width * p.found_step];
    }
    sums[lane][threadIdx.x % COLUMNS] = sum;
    __syncthreads();
    if (lane > 0 || column >= width) return;
    #pragma unroll
    for (int i = 1; i < LANES; ++i) sum += sums[i][threadIdx.x];
    const long long value = column / p.hidden, unit = column % p.hidden;
    const bool is_of_input = value < GATES, is_of_state = CELL != GRU || value != 2;
    const Weight rounded = narrow<Weight>(sum);
    if (is_of_input) p.dw[(p.bias_at + column) * p.dw_step] = rounded;
    if (is_of_state) p.dw[(p.bias_at + (GATES + (value < 2 ? value : CELL == GRU ? 2 : value)) * p.hidden + unit) * p.dw_step] = rounded;
}
