// Data gradient of a first layer, with few channels of dx (1 to 4), on tensor cores (mma.sync).
//
// Algorithm:  pixels of dx form blocks of SH x SW (the strides): position m of dy's grid owns pixels SH * m + a, SW * m + b.
//             All SH * SW * C elements of a block are sums over one window of dy, TAPS_H x TAPS_W x K. This is a
//             convolution of unit stride with N = (a, b, c). A weight that no tap reaches is 0, and window rows
//             that no tap of any b reaches are skipped.
// Tile:       a work item is ROWS rows of blocks, 16 * MT wide. A warp owns RW rows, 16 wide.
// Pipeline:   CTAs are persistent and prepare their weights once, as MMA fragments in shared memory. Rows of dy lie in
//             a ring, and cp.async loads the rows of the next work item during the MMAs.
// NaN:        0 * inf is NaN, so accumulators that are NaN are recomputed tap by tap.
//
// Required constants (from the generator): R, S, SH, SW, C, K, FLIP: filter, strides, channels. KP: K padded to 16. TAPS_H,
// TAPS_W, BASE_TAP_H, BASE_TAP_W, FIRST_H, FIRST_W: the window, its tap for a = 0 and its first row and column. MT, RW,
// WARPS_H: see above; WARPS_H is the warps along the rows. COPY_ELEMS: elements of a copy. UNROLL, THREADS, CTAS_PER_SM.

#include "direct_copy.cuh"
#include "direct_mma.cuh"

constexpr int KS = KP / 16;
constexpr int NW = (SW * C + 7) / 8, NT = SH * NW;
constexpr int ROWS = RW * WARPS_H, WINDOW = ROWS + TAPS_H - 1, RING_ROWS = WINDOW + ROWS;
constexpr int PX = 16 * MT + TAPS_W - 1;
constexpr int PITCH = KP + 8;  // an odd number of 16 bytes, so that rows of a matrix start in different banks
constexpr int ROW = PX * PITCH;
constexpr int COLUMNS = SW * C;
static_assert(THREADS == 32 * MT * WARPS_H, "a warp for each part of a work item");

constexpr int tap_h(int a, int d) { return a + BASE_TAP_H - SH * d; }
constexpr int tap_w(int b, int e) { return b + BASE_TAP_W - SW * e; }
constexpr bool reaches(int a, int d) { return tap_h(a, d) >= 0 && tap_h(a, d) < R; }

#ifndef __CUDA_ARCH__
inline void emulated_rows(void** requests, unsigned) {
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            const unsigned short* row = ((MatrixRows*)requests[8 * i + lane / 4])->row;
            ((MatrixRows*)requests[lane])->result[i] = row[lane % 4 * 2] | (unsigned int)row[lane % 4 * 2 + 1] << 16;
        }
}
#endif

// Loads four 8x8 matrices of 16-bit elements (ldmatrix.x4). Lane 8 * i + r passes the address of row r of matrix i, 16
// bytes. Lane 4 * g + j receives columns 2j and 2j + 1 of row g of each matrix.
__device__ __forceinline__ void ldmatrix_x4(unsigned int (&to)[4], const void* row) {
#ifdef __CUDA_ARCH__
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
#else
    MatrixRows request{(const unsigned short*)row, {}};
    emulated_together(32, &request, emulated_rows);
    for (int i = 0; i < 4; ++i) to[i] = request.result[i];
#endif
}

__device__ __forceinline__ const Element* filter_at(const Params& p, int k, int c, int r, int s) {
    return p.filter + k * p.filter_k + c * p.filter_c + (FLIP ? R - 1 - r : r) * p.filter_r +
           (FLIP ? S - 1 - s : s) * p.filter_s;
}

// Copies COUNT rows of dy, from row `first` and column `column` on, into the ring, from `slot` on.
template <int COUNT>
__device__ __forceinline__ void load_dy_rows(const Params& p, Element* ring, int slot, int n, int first, int column) {
    constexpr int PIXEL_VECS = KP / COPY_ELEMS;
    const Element* const image = p.dy + n * p.dy_n;
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < COUNT * PX * PIXEL_VECS; i += THREADS) {
        const int row = i / (PX * PIXEL_VECS), rem = i - row * (PX * PIXEL_VECS), x = rem / PIXEL_VECS;
        const int k = (rem - x * PIXEL_VECS) * COPY_ELEMS;
        const int h = first + row, w = column + x;
        const bool inside = (unsigned int)h < (unsigned int)p.out_h && (unsigned int)w < (unsigned int)p.out_w && k < K;
        const int ring_slot = slot + row < RING_ROWS ? slot + row : slot + row - RING_ROWS;
        cp_async_zfill<COPY_ELEMS * (int)sizeof(Element)>(
            ring + ring_slot * ROW + x * PITCH + k, inside ? image + h * p.dy_h + w * p.dy_w + k : p.dy, inside
        );
    }
}

// Recomputes one element of dx with only the taps that reach it.
__device__ __forceinline__ float recompute_exact(const Params& p, int n, int c, int h, int w) {
    float accum = 0.0f;
    const int a = h % SH, b = w % SW;
    #pragma unroll 1
    for (int d = 0; d < TAPS_H; ++d) {
        const int r = tap_h(a, d), from_h = h / SH + FIRST_H + d;
        if (r < 0 || r >= R || (unsigned int)from_h >= (unsigned int)p.out_h) continue;
        #pragma unroll 1
        for (int e = 0; e < TAPS_W; ++e) {
            const int s = tap_w(b, e), from_w = w / SW + FIRST_W + e;
            if (s < 0 || s >= S || (unsigned int)from_w >= (unsigned int)p.out_w) continue;
            const Element* const from = p.dy + n * p.dy_n + from_h * p.dy_h + from_w * p.dy_w;
            #pragma unroll 1
            for (int k = 0; k < K; ++k) accum = fmaf(widen<float>(from[k]), widen<float>(*filter_at(p, k, c, r, s)), accum);
        }
    }
    return accum;
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_stem_dgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const ring = (Element*)memory;
    uint2* const filter_fragments = (uint2*)(ring + RING_ROWS * ROW);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float* const epilogue_smem = (float*)(filter_fragments + TAPS_W * KS * TAPS_H * NT * 32) + warp * (16 * COLUMNS);
    const int g = lane / 4, j = lane % 4;
    const int row_group = warp / MT, warp_column = warp % MT * 16;

    for (int i = (int)threadIdx.x; i < TAPS_W * KS * TAPS_H * NT * 32; i += THREADS) {
        const int t = i / 32 % NT, d = i / (32 * NT) % TAPS_H, slice = i / (32 * NT * TAPS_H);
        const int column = t % NW * 8 + i % 32 / 4, b = column / C, c = column - b * C;
        const int r = tap_h(t / NW, d), s = tap_w(b, slice / KS);
        const bool is_tap = column < COLUMNS && r >= 0 && r < R && s >= 0 && s < S;
        const int first = slice % KS * 16 + i % 4 * 2;
        unsigned int fragment[2] = {0, 0};
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int k = first + e / 2 * 8 + e % 2;
            if (is_tap && k < K) fragment[e / 2] |= (unsigned int)filter_at(p, k, c, r, s)->bits << 16 * (e % 2);
        }
        filter_fragments[i] = uint2{fragment[0], fragment[1]};
    }

    unsigned int step = blockIdx.x * (unsigned int)p.steps_per_cta;
    const unsigned int range_end = step + (unsigned int)p.steps_per_cta, end = range_end < (unsigned int)p.steps ? range_end : (unsigned int)p.steps;
    int head = 0;
    bool is_fresh = true;
    #pragma unroll 1
    for (; step < end; ++step) {
        const unsigned int column_block = step / (unsigned int)p.steps_down, down = step - column_block * (unsigned int)p.steps_down;
        const int n = (int)(column_block / (unsigned int)p.steps_across);
        const int column0 = (int)(column_block % (unsigned int)p.steps_across) * (16 * MT), row0 = (int)down * ROWS;
        if (is_fresh) {
            __syncthreads();
            load_dy_rows<WINDOW>(p, ring, head, n, row0 + FIRST_H, column0 + FIRST_W);
            cp_async_commit();
        }
        cp_async_wait<0>();
        __syncthreads();
        is_fresh = step + 1 == end || down + 1 == (unsigned int)p.steps_down;
        if (!is_fresh) {
            const int next = head + WINDOW < RING_ROWS ? head + WINDOW : head + WINDOW - RING_ROWS;
            load_dy_rows<ROWS>(p, ring, next, n, row0 + FIRST_H + WINDOW, column0 + FIRST_W);
            cp_async_commit();
        }

        int from[RW + TAPS_H - 1];
        #pragma unroll
        for (int i = 0; i < RW + TAPS_H - 1; ++i) {
            const int slot = head + row_group * RW + i;
            from[i] = (slot < RING_ROWS ? slot : slot - RING_ROWS) * ROW + (warp_column + lane % 16) * PITCH + lane / 16 * 8;
        }
        float accum[RW][NT][4];
        #pragma unroll
        for (int i = 0; i < RW; ++i)
            #pragma unroll
            for (int t = 0; t < NT; ++t)
                #pragma unroll
                for (int e = 0; e < 4; ++e) accum[i][t][e] = 0.0f;
        #pragma unroll 1
        for (int e = 0; e < TAPS_W; ++e) {
            #pragma unroll UNROLL
            for (int slice = 0; slice < KS; ++slice) {
                const uint2* const fragments = filter_fragments + (e * KS + slice) * (TAPS_H * NT * 32) + lane;
                uint2 weight[TAPS_H][NT];
                #pragma unroll
                for (int d = 0; d < TAPS_H; ++d)
                    #pragma unroll
                    for (int t = 0; t < NT; ++t)
                        if (reaches(t / NW, d)) weight[d][t] = fragments[(d * NT + t) * 32];
                #pragma unroll
                for (int i = 0; i < RW + TAPS_H - 1; ++i) {
                    unsigned int a[4];
                    ldmatrix_x4(a, ring + from[i] + e * PITCH + slice * 16);
                    #pragma unroll
                    for (int row = 0; row < RW; ++row) {
                        const int d = i - row;
                        if (d < 0 || d >= TAPS_H) continue;
                        #pragma unroll
                        for (int t = 0; t < NT; ++t)
                            if (reaches(t / NW, d))
                                mma_sync<Element, true>(
                                    accum[row][t], a[0], a[1], a[2], a[3], weight[d][t].x, weight[d][t].y
                                );
                    }
                }
            }
        }

        // Stores one row of dx at a time, so that neighbouring lanes store neighbouring elements.
        #pragma unroll 1
        for (int pass = 0; pass < RW * SH; ++pass) {
            __syncwarp();
            #pragma unroll
            for (int i = 0; i < RW * SH; ++i) {
                if (i != pass) continue;
                #pragma unroll
                for (int t = 0; t < NW; ++t)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int column = t * 8 + 2 * j + e % 2;
                        if (column < COLUMNS) epilogue_smem[(g + e / 2 * 8) * COLUMNS + column] = accum[i / SH][i % SH * NW + t][e];
                    }
            }
            __syncwarp();
            const int h = (row0 + row_group * RW + pass / SH) * SH + pass % SH;
            if (h >= (int)p.in_h) continue;
            #pragma unroll 1
            for (int i = lane; i < 16 * COLUMNS; i += 32) {
                const int pixel = i / COLUMNS, column = i - pixel * COLUMNS, b = column / C;
                const int coord[4] = {n, column - b * C, h, (column0 + warp_column + pixel) * SW + b};
                if (coord[3] >= (int)p.in_w) continue;
                float acc[1] = {epilogue_smem[i]};
                if (acc[0] != acc[0]) acc[0] = recompute_exact(p, n, coord[1], h, coord[3]);
                epilogue(p, coord, acc);
            }
        }
        head = head + ROWS < RING_ROWS ? head + ROWS : head + ROWS - RING_ROWS;
    }
}
