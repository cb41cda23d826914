// im2col_matrix writes y[c * taps + tap, n * positions + position]: the element of x that the tap reads at the position, or zero in
// the padding. Elements are copied as bits.
//
// Tile:    one element of y for a thread.
// Memory:  threads follow the rows of y.
// Threads: threads are independent; the grid strides over y.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. RANK: spatial axes, 1 to 3; FLIPPED: 1 for convolutions, whose taps are reversed.

extern "C" __global__ void __launch_bounds__(THREADS) im2col_matrix(const __grid_constant__ Params p) {
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < (unsigned long long)p.count;
         i += (unsigned long long)gridDim.x * THREADS) {
        unsigned long long position = i % (unsigned long long)p.columns, tap = i / (unsigned long long)p.columns;
        const long long to = (long long)tap * p.y_stride[0] + (long long)position * p.y_stride[1];
        long long from = 0;
        bool inside = true;
        #pragma unroll
        for (int j = RANK - 1; j >= 0; --j) {
            const long long place = (long long)(position % (unsigned long long)p.places[j]);
            position /= (unsigned long long)p.places[j];
            long long t = (long long)(tap % (unsigned long long)p.taps[j]);
            tap /= (unsigned long long)p.taps[j];
            if (FLIPPED) t = p.taps[j] - 1 - t;
            const long long at = place * p.step[j] + t * p.dilation[j] - p.padding[j];
            inside = inside && at >= 0 && at < p.extent[j];
            from += at * p.x_stride[2 + j];
        }
        from += (long long)position * p.x_stride[0] + (long long)tap * p.x_stride[1];
        Item item = Item();
        if (inside) item = ((const Item*)p.x)[from];
        ((Item*)p.y)[to] = item;
    }
}
