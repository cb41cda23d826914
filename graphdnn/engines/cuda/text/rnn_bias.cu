// Gradients of the biases: sums over all rows of what enters the gates, COLUMNS of them for a block, whose threads share the
// rows and join in order. The input's biases come first, then those of the state.

extern "C" __global__ void __launch_bounds__(THREADS) rnn_bias(const __grid_constant__ Params p) {
    constexpr int LANES = THREADS / COLUMNS;
    __shared__ Compute sums[LANES][COLUMNS];
    const int lane = (int)threadIdx.x / COLUMNS, hidden = (int)p.hidden, size = GATES * hidden;
    const int bias = (int)blockIdx.x * COLUMNS + (int)threadIdx.x % COLUMNS;
    const int gate = bias % size / hidden, unit = bias % hidden;
    const int value = CELL == GRU && bias >= size && gate == 2 ? 3 : gate;
    Compute sum = Compute(0);
    if (bias < 2 * size) {
        const Compute* from = p.found + p.found_at + ((long long)value * hidden + unit) * p.found_step;
        const long long pitch = (long long)KEPT_GRADIENTS * hidden * p.found_step;
        #pragma unroll 8
        for (long long row = lane; row < p.rows; row += LANES) sum += from[row * pitch];
    }
    sums[lane][threadIdx.x % COLUMNS] = sum;
    __syncthreads();
    if (lane > 0 || bias >= 2 * size) return;
    #pragma unroll
    for (int i = 1; i < LANES; ++i) sum += sums[i][threadIdx.x];
    p.dw[(p.bias_at + bias) * p.dw_step] = narrow<Weight>(sum);
}
