// rnn_begin prepares the launches of a recurrent network: it clears the counters of the grid barriers and computes the first
// row of each time step from runs of steps that have equal numbers of sequences.
//
// Tile:    one CTA for the whole network.
// Memory:  p.starts[t] is the first row of step t; p.arrived are the counters.
// Threads: a thread for each counter and each step, with stride THREADS.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.

extern "C" __global__ void __launch_bounds__(THREADS) rnn_begin(const __grid_constant__ Params p) {
    for (int i = threadIdx.x; i < (int)p.barriers; i += THREADS) p.arrived[i] = 0;
    for (int t = (int)p.first + (int)threadIdx.x; t < (int)p.last; t += THREADS) {
        int run = 0;
        while (run + 1 < (int)p.runs && p.run_step[run + 1] <= t) ++run;
        p.starts[t] = (int)(p.run_row[run] + (t - p.run_step[run]) * p.run_batch[run]);
    }
}
