// y[n, c, row, column] = the image x[n, c] at the grid's position, between its four neighbours. Threads follow y in memory.

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample(const __grid_constant__ Params p) {
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < (unsigned long long)p.count;
         i += (unsigned long long)gridDim.x * THREADS) {
        long long at[4];
        unsigned long long rest = i;
        #pragma unroll
        for (int j = 3; j >= 0; --j) {
            at[j] = (long long)(rest % (unsigned long long)p.size[j]);
            rest /= (unsigned long long)p.size[j];
        }
        const long long n = at[AT_N], c = at[AT_C], row = at[AT_ROW], column = at[AT_COLUMN];
        const Place place = place_at(n, row, column, p);
        const long long image = n * p.x_stride[0] + c * p.x_stride[1];
        Compute sum = Compute(0);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int h = place.top + k / 2, w = place.left + k % 2;
            if (!place.is_near || !is_inside(h, w, p)) continue;
            const Compute across = k % 2 ? place.right_share : Compute(1) - place.right_share;
            const Compute down = k / 2 ? place.bottom_share : Compute(1) - place.bottom_share;
            sum += widen<Compute>(p.x[image + h * p.x_stride[2] + w * p.x_stride[3]]) * (across * down);
        }
        const long long to = n * p.y_stride[0] + c * p.y_stride[1] + row * p.y_stride[2] + column * p.y_stride[3];
        store(p, to, sum);
    }
}
