// Items from strides to strides, in y's order; UNROLL of a thread's loads are under way at once. The blocks of each of
// several PIECES follow those of the piece before.

extern "C" __global__ void __launch_bounds__(THREADS) movement_copy(const __grid_constant__ Params p) {
    pdl_wait();
    int piece = 0;
    Count block = (Count)blockIdx.x;
    if constexpr (PIECES > 1)
        while (piece < PIECES - 1 && block >= (Count)p.blocks[piece]) block -= (Count)p.blocks[piece++];
    const Item* const x = source_of(p, piece) + p.x_start[piece];
    Item* const y = (Item*)p.y + p.y_start[piece];
    const int axes = piece * RANK;
    const Count count = (Count)p.count[piece], blocks = (Count)p.blocks[piece];
    for (Count first = block * (THREADS * UNROLL); first < count; first += blocks * (THREADS * UNROLL)) {
        Item held[UNROLL];
        long long to[UNROLL];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const Count i = first + u * THREADS + threadIdx.x;
            if (i >= count) break;
            Count rest = i;
            long long from = 0;
            to[u] = 0;
            #pragma unroll
            for (int j = RANK - 1; j > 0; --j) {
                const Count outer = quotient(rest, p.size[axes + j], p.magic[axes + j]);
                const long long at = (long long)(rest - outer * (Count)p.size[axes + j]);
                from += at * p.x_stride[axes + j];
                to[u] += at * p.y_stride[axes + j];
                rest = outer;
            }
            from += (long long)rest * p.x_stride[axes];
            to[u] += (long long)rest * p.y_stride[axes];
            held[u] = x[from];
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * THREADS + threadIdx.x < count) y[to[u]] = held[u];
    }
}
