// rnn_combine computes the values between layers: sums over directions (or over gates, if the layer has no input matrix), with
// the dropout mask and its scale.
//
// Tile:    WIDTH adjacent columns of a row for a thread.
// Memory:  rows are sequences of all steps; columns are units. Accesses are vectors of WIDTH elements.
// Threads: threads are independent; the grid strides over all vectors.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. WIDTH: elements of a vector, a power of two.

extern "C" __global__ void __launch_bounds__(THREADS, 4) rnn_combine(const __grid_constant__ Params p) {
    const Count packs = (Count)p.columns / WIDTH, count = (Count)p.rows * packs;
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < count; i += (Count)gridDim.x * THREADS) {
        const long long row = i / packs, column = (long long)(i % packs) * WIDTH;
        Compute sum[WIDTH];
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) sum[e] = Compute(0);
        for (int d = 0; d < (int)p.sources; ++d)
            for (int g = 0; g < (int)p.terms; ++g) {
                const From* from = p.from + p.from_at + d * p.source_stride + row * p.from_stride[0] + g * p.term_stride;
                From some[WIDTH];
                load<WIDTH>(from + column * p.from_stride[1], Packed(), some);
                #pragma unroll
                for (int e = 0; e < WIDTH; ++e) sum[e] += widen<Compute>(some[e]);
            }
        To rounded[WIDTH];
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            if (p.masks) sum[e] = p.masks[p.mask_at + row * p.columns + column + e].bits ? sum[e] * Compute(p.scale) : Compute(0);
            rounded[e] = narrow<To>(sum[e]);
        }
        store<WIDTH>(p.to + p.to_at + row * p.to_stride[0] + column * p.to_stride[1], Packed(), rounded);
    }
}
