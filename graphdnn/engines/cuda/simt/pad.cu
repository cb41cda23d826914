// pad copies a tensor and adds zeros around it, in the memory order of the source; the copy may have a wider type.
//
// Tile:    one element of the copy for a thread.
// Memory:  the copy is packed in the source's axis order; consecutive threads write consecutive elements.
// Threads: threads are independent; the grid strides over the copy.
//
// Required constants (from the generator): THREADS: threads of a CTA; RANK: axes of the tensor.

extern "C" __global__ void __launch_bounds__(THREADS) pad(const __grid_constant__ Params p) {
    const long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += step) {
        unsigned long long rem = (unsigned long long)i;
        long long offset = 0;
        bool inside = true;
        #pragma unroll
        for (int j = RANK - 1; j >= 0; --j) {
            const unsigned int size = (unsigned int)p.padded_size[j];
            int at;
            if (rem < (1ull << 32)) {
                at = (int)((unsigned int)rem % size);
                rem = (unsigned int)rem / size;
            } else {
                at = (int)(rem % size);
                rem /= size;
            }
            at -= (int)p.before[j];
            inside = inside && (unsigned int)at < (unsigned int)p.source_size[j];
            offset += at * p.source_stride[j];
        }
        p.target[i] = narrow<Target>(inside ? widen<Arithmetic>(load_vec_read_only<1>(p.source + offset).data[0]) : (Arithmetic)0);
    }
}
