// grid_sample_grid computes the gradient of the grid: sums over channels of dy times the difference of adjacent pixels.
//
// Tile:    THREADS / SLICES positions for a CTA.
// Memory:  VEC_WIDTH > 1: channels are contiguous, and the threads of a position read adjacent vectors. Otherwise adjacent threads
//          have adjacent positions.
// Threads: SLICES threads divide the channels of a position; one of them adds the partial sums, in order.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA; SLICES: threads of a position, a divisor of THREADS; VEC_WIDTH: channels of a vector, 1 or more.

#include "pdl.cuh"
#include "fast_division.cuh"
#include "grid_sample.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_grid(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    constexpr int POSITIONS = THREADS / SLICES;
    __shared__ Compute partial_sums[2][THREADS];
    const int thread = (int)threadIdx.x, slice = VEC_WIDTH > 1 ? thread % SLICES : thread / POSITIONS;
    const int cta_position = VEC_WIDTH > 1 ? thread / SLICES : thread % POSITIONS;
    const Count i = (Count)blockIdx.x * POSITIONS + cta_position;
    const bool is_position = i < (Count)p.count;
    const Count above = quotient(i, p.columns, p.magic_columns), n = quotient(above, p.rows, p.magic_rows);
    const long long column = (long long)(i - above * (Count)p.columns), row = (long long)(above - n * (Count)p.rows);
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
        for (int c = slice * VEC_WIDTH; c < (int)p.channels; c += SLICES * VEC_WIDTH) {
            Compute dy[VEC_WIDTH] = {}, corner[4][VEC_WIDTH] = {};
            add_vec(p.dy + of_dy + c * (Index)p.dy_stride[1], Compute(1), dy);
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                if (counts[k]) add_vec(p.x + from[k] + c * (Index)p.x_stride[1], Compute(1), corner[k]);
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                by_x += dy[e] * ((corner[1][e] - corner[0][e]) * top + (corner[3][e] - corner[2][e]) * place.bottom_share);
                by_y += dy[e] * ((corner[2][e] - corner[0][e]) * left + (corner[3][e] - corner[1][e]) * place.right_share);
            }
        }
    }
    partial_sums[0][slice * POSITIONS + cta_position] = by_x;
    partial_sums[1][slice * POSITIONS + cta_position] = by_y;
    __syncthreads();
    if (slice > 0 || !is_position) return;
    #pragma unroll
    for (int k = 1; k < SLICES; ++k) {
        by_x += partial_sums[0][k * POSITIONS + cta_position];
        by_y += partial_sums[1][k * POSITIONS + cta_position];
    }
    const long long to = n * p.dgrid_stride[0] + row * p.dgrid_stride[1] + column * p.dgrid_stride[2];
    const Compute x[1] = {by_x * Compute(p.half_width)}, y[1] = {by_y * Compute(p.half_height)};
    store(p, to, x);
    store(p, to + p.dgrid_stride[3], y);
}
