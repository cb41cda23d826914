// winograd_filter computes the Winograd filter transform u = G g G^T of every 3 x 3 filter.
//
// Tile:    64 outer channels x THREADS / 64 inner channels for a CTA. The GEMM sums over inner channels.
// Memory:  u is packed as the GEMM reads it, in blocks of BLOCK_OUTER outer channels, which are contiguous; zeros past the end.
// Threads: a thread transforms the filter of one (outer, inner) pair.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 64; ALPHA: components along an axis, 4 or 6.
//   BLOCK_OUTER: outer channels of a block of u; FLIP: 1 if the taps are reversed (data gradient).

#include "winograd_algorithm.cuh"

constexpr int OUTER = 64;

extern "C" __global__ void __launch_bounds__(THREADS) winograd_filter(const __grid_constant__ Params p) {
    const int outer = (int)blockIdx.x * OUTER + (int)threadIdx.x % OUTER;
    const int inner = (int)blockIdx.y * (THREADS / OUTER) + (int)threadIdx.x / OUTER;
    if (inner >= p.padded_inner) return;
    float g[3][3] = {{0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f}};
    if (outer < p.outer && inner < p.inner) {
        #pragma unroll
        for (int r = 0; r < 3; ++r)
            #pragma unroll
            for (int s = 0; s < 3; ++s) {
                const Filter* from = p.filter + (outer * p.filter_outer + inner * p.filter_inner +
                                                 (FLIP ? 2 - r : r) * p.filter_r + (FLIP ? 2 - s : s) * p.filter_s);
                g[r][s] = widen<float>(load_vec_read_only<1>(from).data[0]);
            }
    }
    float columns_done[ALPHA][3];
    #pragma unroll
    for (int s = 0; s < 3; ++s) {
        float in[3], out[ALPHA];
        #pragma unroll
        for (int r = 0; r < 3; ++r) in[r] = g[r][s];
        filter_transform_1d(in, out);
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) columns_done[i][s] = out[i];
    }
    float* const to = p.u + (outer / BLOCK_OUTER * p.u_block + outer % BLOCK_OUTER + inner * p.u_c);
    #pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
        float out[ALPHA];
        filter_transform_1d(columns_done[i], out);
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) to[(i * ALPHA + j) * p.u_xi] = out[j];
    }
}
