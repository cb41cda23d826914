// What goes from layer to layer: sums of what the directions (or, without a matrix, the gates) give, thinned out by masks.

extern "C" __global__ void __launch_bounds__(THREADS) rnn_join(const __grid_constant__ Params p) {
    const long long columns = p.columns, count = p.rows * columns;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const long long row = i / columns, column = i - row * columns;
        Compute sum = Compute(0);
        for (int d = 0; d < (int)p.sources; ++d)
            for (int g = 0; g < (int)p.terms; ++g)
                sum += widen<Compute>(p.from[p.from_at + d * p.source_stride + row * p.row_stride + g * p.term_stride + column * p.column_stride]);
        if (p.masks) sum = p.masks[p.mask_at + i].bits ? sum * Compute(p.scale) : Compute(0);
        p.to[row * p.to_stride[0] + column * p.to_stride[1]] = narrow<To>(sum);
    }
}
