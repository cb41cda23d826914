// movement_general copies elements between any two layouts: element i in row-major order of y's view comes from element i in
// row-major order of x's view. Each side has its own axes, steps and vectors (NCHW_VECT_C).
//
// Tile:    one element for a thread.
// Memory:  offsets are computed by 64-bit division for each element; the kernel serves layouts that no other copy kernel takes.
// Threads: threads are independent; the grid strides over all elements. The generated load_item() and store_item() read and
//          write one.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.

template <int R> __device__ __forceinline__ long long offset_of(
    unsigned long long i, const long long (&size)[R], const long long (&start)[R], const long long (&step)[R],
    const long long (&stride)[R], const long long (&vector)[R]) {
    long long offset = 0;
    #pragma unroll
    for (int j = R - 1; j >= 0; --j) {
        const long long at = (long long)(i % (unsigned long long)size[j]) * step[j] + start[j];
        i /= (unsigned long long)size[j];
        offset += at / vector[j] * stride[j] + at % vector[j];
    }
    return offset;
}

extern "C" __global__ void __launch_bounds__(THREADS) movement_general(const __grid_constant__ Params p) {
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < (unsigned long long)p.count;
         i += (unsigned long long)gridDim.x * THREADS) {
        store_item(p, offset_of(i, p.y_size, p.y_start, p.y_step, p.y_stride, p.y_vector),
            load_item(p, offset_of(i, p.x_size, p.x_start, p.x_step, p.x_stride, p.x_vector)));
    }
}
