// The gradient of the grid: a thread for each position sums over the channels.

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_grid(const __grid_constant__ Params p) {
    for (unsigned long long i = (unsigned long long)blockIdx.x * THREADS + threadIdx.x; i < (unsigned long long)p.count;
         i += (unsigned long long)gridDim.x * THREADS) {
        const long long column = (long long)(i % (unsigned long long)p.columns);
        const long long above = (long long)(i / (unsigned long long)p.columns);
        const long long row = above % p.rows, n = above / p.rows;
        const Place place = place_at(n, row, column, p);
        Compute by_x = Compute(0), by_y = Compute(0);
        if (place.is_near) {
            for (long long c = 0; c < p.channels; ++c) {
                const long long image = n * p.x_stride[0] + c * p.x_stride[1];
                const Compute dy = widen<Compute>(
                    p.dy[n * p.dy_stride[0] + c * p.dy_stride[1] + row * p.dy_stride[2] + column * p.dy_stride[3]]);
                Compute corner[4];
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const int h = place.top + k / 2, w = place.left + k % 2;
                    corner[k] = Compute(0);
                    if (is_inside(h, w, p)) {
                        corner[k] = widen<Compute>(p.x[image + h * p.x_stride[2] + w * p.x_stride[3]]);
                    }
                }
                const Compute top = Compute(1) - place.bottom_share, left = Compute(1) - place.right_share;
                by_x += dy * ((corner[1] - corner[0]) * top + (corner[3] - corner[2]) * place.bottom_share);
                by_y += dy * ((corner[2] - corner[0]) * left + (corner[3] - corner[1]) * place.right_share);
            }
        }
        const long long to = n * p.dgrid_stride[0] + row * p.dgrid_stride[1] + column * p.dgrid_stride[2];
        store(p, to, by_x * Compute(p.half_width));
        store(p, to + p.dgrid_stride[3], by_y * Compute(p.half_height));
    }
}
