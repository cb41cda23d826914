// Any mode, window and stride: every thread computes WIDTH neighbouring outputs, a tap at a time.

extern "C" __global__ void __launch_bounds__(THREADS, 1) resample_forward(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < (Count)p.count; i += (Count)gridDim.x * THREADS) {
        int at[RANK];
        coordinates(i, p, at);
        Compute result[WIDTH];
        int place[WIDTH];
        #pragma unroll
        for (int e = 0; e < WIDTH; e += INPUT_WIDTH) {
            int here[RANK];
            #pragma unroll
            for (int j = 0; j < RANK; ++j) here[j] = at[j];
            here[RANK - 1] += e;
            Compute some[INPUT_WIDTH];
            int places[INPUT_WIDTH];
            resampled<INPUT_WIDTH>(p, here, some, places);
            #pragma unroll
            for (int k = 0; k < INPUT_WIDTH; ++k) {
                result[e + k] = some[k];
                if constexpr (MODE == MAXIMUM) place[e + k] = places[k];
            }
        }
        epilogue(p, at, result, place);
    }
}
