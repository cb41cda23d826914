// A pointwise graph over one space of coordinates: every thread computes WIDTH neighbours on the last axis.

extern "C" __global__ void __launch_bounds__(THREADS) pointwise(const __grid_constant__ Params p) {
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < (Count)p.count; i += (Count)gridDim.x * THREADS) {
        int at[RANK];
        Count rest = i;
        #pragma unroll
        for (int j = RANK - 1; j > 0; --j) {
            const Count size = (Count)(j == RANK - 1 ? p.size[j] / WIDTH : p.size[j]);
            const Count outer = rest / size;
            at[j] = (int)(rest - outer * size);
            rest = outer;
        }
        at[0] = (int)rest;
        at[RANK - 1] *= WIDTH;
        chain(p, at);
    }
}
