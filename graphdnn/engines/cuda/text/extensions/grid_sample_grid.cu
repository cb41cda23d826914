// The gradient of the grid: SLICES threads for each position sum over their share of the channels; then one of them adds
// the shares, in order. Threads of a warp have neighbouring positions.

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_grid(const __grid_constant__ Params p) {
    let_next_start();
    wait_for_launch_before();
    constexpr int POSITIONS = THREADS / SLICES;
    __shared__ Compute shares[2][THREADS];
    const int slice = (int)threadIdx.x / POSITIONS;
    const long long i = (long long)blockIdx.x * POSITIONS + threadIdx.x % POSITIONS;
    const bool is_position = i < p.count;
    const long long column = i % p.columns, above = i / p.columns;
    const long long row = above % p.rows, n = above / p.rows;
    Compute by_x = Compute(0), by_y = Compute(0);
    Place place;
    place.is_near = false;
    if (is_position) place = place_at(n, row, column, p);
    if (place.is_near) {
        Index from[4];
        bool counts[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int h = place.top + k / 2, w = place.left + k % 2;
            counts[k] = is_inside(h, w, p);
            from[k] = (Index)n * (Index)p.x_stride[0] + h * (Index)p.x_stride[2] + w * (Index)p.x_stride[3];
        }
        const Index of_dy = (Index)n * (Index)p.dy_stride[0] + (Index)row * (Index)p.dy_stride[2] +
                            (Index)column * (Index)p.dy_stride[3];
        const Compute top = Compute(1) - place.bottom_share, left = Compute(1) - place.right_share;
        #pragma unroll 4
        for (int c = slice; c < (int)p.channels; c += SLICES) {
            const Compute dy = widen<Compute>(p.dy[of_dy + c * (Index)p.dy_stride[1]]);
            Compute corner[4];
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                corner[k] = counts[k] ? widen<Compute>(p.x[from[k] + c * (Index)p.x_stride[1]]) : Compute(0);
            by_x += dy * ((corner[1] - corner[0]) * top + (corner[3] - corner[2]) * place.bottom_share);
            by_y += dy * ((corner[2] - corner[0]) * left + (corner[3] - corner[1]) * place.right_share);
        }
    }
    shares[0][threadIdx.x] = by_x;
    shares[1][threadIdx.x] = by_y;
    __syncthreads();
    if (slice > 0 || !is_position) return;
    #pragma unroll
    for (int k = 1; k < SLICES; ++k) {
        by_x += shares[0][threadIdx.x + k * POSITIONS];
        by_y += shares[1][threadIdx.x + k * POSITIONS];
    }
    const long long to = n * p.dgrid_stride[0] + row * p.dgrid_stride[1] + column * p.dgrid_stride[2];
    store(p, to, by_x * Compute(p.half_width));
    store(p, to + p.dgrid_stride[3], by_y * Compute(p.half_height));
}
