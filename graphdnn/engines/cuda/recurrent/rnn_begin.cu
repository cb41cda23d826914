// What the launches of a recurrent network count with: where the rows of each step begin, from runs of steps that have the
// same number of sequences; and counts of blocks that arrived, which start at 0.

extern "C" __global__ void __launch_bounds__(THREADS) rnn_begin(const __grid_constant__ Params p) {
    for (int i = threadIdx.x; i < (int)p.barriers; i += THREADS) p.arrived[i] = 0;
    for (int t = (int)p.first + (int)threadIdx.x; t < (int)p.last; t += THREADS) {
        int run = 0;
        while (run + 1 < (int)p.runs && p.run_step[run + 1] <= t) ++run;
        p.starts[t] = (int)(p.run_row[run] + (t - p.run_step[run]) * p.run_batch[run]);
    }
}
