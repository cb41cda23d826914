// A copy of a tensor with zeros around it, in the memory order of the source, and perhaps in a wider type.

extern "C" __global__ void __launch_bounds__(THREADS) pad(const __grid_constant__ Params p) {
    const long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += step) {
        unsigned long long rest = (unsigned long long)i;
        long long offset = 0;
        bool inside = true;
        #pragma unroll
        for (int j = RANK - 1; j >= 0; --j) {
            const unsigned int size = (unsigned int)p.padded_size[j];
            int at;
            if (rest < (1ull << 32)) {
                at = (int)((unsigned int)rest % size);
                rest = (unsigned int)rest / size;
            } else {
                at = (int)(rest % size);
                rest /= size;
            }
            at -= (int)p.before[j];
            inside = inside && (unsigned int)at < (unsigned int)p.source_size[j];
            offset += at * p.source_stride[j];
        }
        p.target[i] = narrow<Target>(inside ? widen<Arithmetic>(load_vec_read_only<1>(p.source + offset).data[0]) : (Arithmetic)0);
    }
}
