// Items from strides to strides, in y's order; UNROLL of a thread's loads are under way at once.

extern "C" __global__ void __launch_bounds__(THREADS) movement_copy(const __grid_constant__ Params p) {
    wait_for_launch_before();
    const Item* const x = (const Item*)p.x + p.x_start;
    Item* const y = (Item*)p.y + p.y_start;
    for (Count first = (Count)blockIdx.x * (THREADS * UNROLL); first < (Count)p.count;
         first += (Count)gridDim.x * (THREADS * UNROLL)) {
        Item held[UNROLL];
        long long to[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Count i = first + u * THREADS + threadIdx.x;
            if (i >= (Count)p.count) break;
            Count rest = i;
            long long from = 0;
            to[u] = 0;
            #pragma unroll
            for (int j = RANK - 1; j > 0; --j) {
                const Count outer = quotient(rest, p.size[j], p.magic[j]);
                const long long at = (long long)(rest - outer * (Count)p.size[j]);
                from += at * p.x_stride[j];
                to[u] += at * p.y_stride[j];
                rest = outer;
            }
            from += (long long)rest * p.x_stride[0];
            to[u] += (long long)rest * p.y_stride[0];
            held[u] = x[from];
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS + threadIdx.x < (Count)p.count) y[to[u]] = held[u];
    }
}
