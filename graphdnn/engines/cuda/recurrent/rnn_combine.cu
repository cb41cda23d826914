// rnn_combine computes the values between layers: sums over directions (or over gates, if the layer has no input matrix), with
// the dropout mask and its scale.
//
// Tile:    VEC_WIDTH adjacent columns of a row for a thread.
// Memory:  rows are sequences of all steps; columns are units. Accesses are vectors of VEC_WIDTH elements.
// Threads: threads are independent; the grid strides over all vectors.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. VEC_WIDTH: elements of a vector, a power of two.

extern "C" __global__ void __launch_bounds__(THREADS, 4) rnn_combine(const __grid_constant__ Params p) {
    const Count vecs = (Count)p.columns / VEC_WIDTH, count = (Count)p.rows * vecs;
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < count; i += (Count)gridDim.x * THREADS) {
        const long long row = i / vecs, column = (long long)(i % vecs) * VEC_WIDTH;
        Compute sum[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) sum[e] = Compute(0);
        for (int d = 0; d < (int)p.sources; ++d)
            for (int g = 0; g < (int)p.terms; ++g) {
                const From* from = p.from + p.from_at + d * p.source_stride + row * p.from_stride[0] + g * p.term_stride;
                From some[VEC_WIDTH];
                load<VEC_WIDTH>(from + column * p.from_stride[1], Packed(), some);
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) sum[e] += widen<Compute>(some[e]);
            }
        To rounded[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) {
            if (p.masks) sum[e] = p.masks[p.mask_at + row * p.columns + column + e].bits ? sum[e] * Compute(p.scale) : Compute(0);
            rounded[e] = narrow<To>(sum[e]);
        }
        store<VEC_WIDTH>(p.to + p.to_at + row * p.to_stride[0] + column * p.to_stride[1], Packed(), rounded);
    }
}
