// Filter gradient of a first layer: x has few channels (1 to 4), channels last, on tensor cores (mma.sync).
//
// MMA:        dw = transposed dy (channels k x pixels) times windows (pixels x window elements). With channels last,
//             the window of one filter row is contiguous elements of x, read as 32-bit words. The words of pixels q and
//             q + 1 give a K pair for each of two columns. N therefore counts words: R windows of WINDOW_WORDS words. Where
//             windows start at an odd element, N includes the element before them (LEADING_ELEMENT).
// Tile:       a stage is TILE_ROWS whole rows of dy and the rows of x that they read. WARPS_N warps divide the words, and WARPS_K
//             warps divide the pixels.
// Pipeline:   CTAs are persistent. The next stage arrives by cp.async during the MMAs.
// Epilogue:   the warps along K are added in order, then each CTA stores a partial sum. A second launch,
//             direct_stem_wgrad_sum, adds the partial sums in a fixed order.
//
// Required constants (from the generator): R, S, C, STRIDE_H, STRIDE_W, FLIP: the filter. TILE_ROWS, WINDOW_WORDS,
// LEADING_ELEMENT, WARPS_N, WARPS_K: see above. MT, NP: MMA tiles of a warp. QP: pixels of a row, padded to 16. PITCH,
// LEFT_PAD_ELEMS: elements of a row of x, and zeros before it. COPY_ELEMS, DY_COPY_ELEMS: elements of a copy. WHOLE_COLUMNS:
// rows are multiples of 16 pixels. REDUCE_WARPS, THREADS, CTAS_PER_SM.

#include "direct_copy.cuh"
#include "direct_mma.cuh"

constexpr int IN_ROWS = (TILE_ROWS - 1) * STRIDE_H + R;
constexpr int KT = 16 * MT;          // channels of a CTA
constexpr int DY_PITCH = KT + 8;     // an odd number of 16 bytes
constexpr int X_STAGE = IN_ROWS * PITCH, DY_STAGE = TILE_ROWS * QP * DY_PITCH;
constexpr int PAIRS = WARPS_N * NP;   // pairs of MMAs, 8 words each
constexpr int COLUMNS = 16 * PAIRS;
static_assert(THREADS == 32 * WARPS_N * WARPS_K, "one warp for each part of the words and of the pixels");
static_assert(STRIDE_W * C % 2 == 0, "windows of neighbouring pixels begin at even distances");

__device__ __forceinline__ void load_stage(const Params& p, Element* xs, Element* dys, unsigned int stage, int channel0) {
    const int n = (int)(stage / (unsigned int)p.row_stages), out0 = (int)(stage % (unsigned int)p.row_stages) * TILE_ROWS;
    const int h0 = out0 * STRIDE_H - (int)p.pad_h, row_vectors = (int)p.row_vectors;
    const Element* const image = p.x + n * p.x_n;
    #pragma unroll 1
    for (int r = (int)threadIdx.x / 32; r < IN_ROWS; r += THREADS / 32) {  // one warp copies a row
        const int h = h0 + r;
        const bool inside = (unsigned int)h < (unsigned int)p.in_h;
        const Element* const from = image + (inside ? h * p.x_h : 0);
        #pragma unroll 1
        for (int vec = (int)threadIdx.x % 32; vec < row_vectors; vec += 32)
            cp_async_zfill<COPY_ELEMS * (int)sizeof(Element)>(xs + r * PITCH + LEFT_PAD_ELEMS + vec * COPY_ELEMS, from + vec * COPY_ELEMS, inside);
    }
    constexpr int PIXEL_VECS = KT / DY_COPY_ELEMS;
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < TILE_ROWS * QP * PIXEL_VECS; i += THREADS) {
        const int row = i / (QP * PIXEL_VECS), rem = i - row * (QP * PIXEL_VECS), q = rem / PIXEL_VECS, k = (rem - q * PIXEL_VECS) * DY_COPY_ELEMS;
        const bool inside = out0 + row < (int)p.out_h && q < (int)p.out_w && channel0 + k < (int)p.channels_out;
        cp_async_zfill<DY_COPY_ELEMS * (int)sizeof(Element)>(
            dys + (row * QP + q) * DY_PITCH + k,
            inside ? p.dy + n * p.dy_n + (out0 + row) * p.dy_h + q * p.dy_w + channel0 + k : p.dy, inside
        );
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_stem_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const xs = (Element*)memory;
    Element* const dys = xs + 2 * X_STAGE;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int g = lane / 4, j = lane % 4;
    const int warp_n = warp % WARPS_N, warp_k = warp / WARPS_N;
    const int channel0 = (int)blockIdx.y * KT;

    {  // writes the zeros before and after the rows
        const int inner = (int)p.row_vectors * COPY_ELEMS, outer = PITCH - inner;
        for (int i = threadIdx.x; i < 2 * IN_ROWS * outer; i += THREADS) {
            const int r = i / outer, e = i - r * outer;
            xs[r * PITCH + (e < LEFT_PAD_ELEMS ? e : e + inner)].bits = 0;
        }
    }
    unsigned int stage = blockIdx.x;
    if (stage < (unsigned int)p.stages) load_stage(p, xs, dys, stage, channel0);
    cp_async_commit();

    int word_at[NP];  // offsets of this lane's words in a pixel's window
    #pragma unroll
    for (int i = 0; i < NP; ++i) {
        const int word = (warp_n * NP + i) * 8 + g, r = word / WINDOW_WORDS;
        word_at[i] = r < R ? r * PITCH + (int)p.window + 2 * (word - r * WINDOW_WORDS) + 2 * j * (STRIDE_W * C) : 0;
    }
    const int dy_matrix = (lane / 16 * 8 + lane % 8) * DY_PITCH + lane / 8 % 2 * 8;

    float accum[MT][NP][2][4];
    #pragma unroll
    for (int m = 0; m < MT; ++m)
        #pragma unroll
        for (int i = 0; i < 2 * NP; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum[m][i / 2][i % 2][e] = 0.0f;

    int slot = 0;
    #pragma unroll 1
    for (; stage < (unsigned int)p.stages; stage += gridDim.x) {
        cp_async_wait<0>();
        __syncthreads();
        if (stage + gridDim.x < (unsigned int)p.stages)
            load_stage(p, xs + (slot ^ 1) * X_STAGE, dys + (slot ^ 1) * DY_STAGE, stage + gridDim.x, channel0);
        cp_async_commit();
        const int rows_left = (int)p.out_h - (int)(stage % (unsigned int)p.row_stages) * TILE_ROWS;
        const int rows = rows_left < TILE_ROWS ? rows_left : TILE_ROWS;
        #pragma unroll 1
        for (int k_step = warp_k; k_step < rows * (QP / 16); k_step += WARPS_K) {
            const int row = k_step / (QP / 16), q0 = k_step % (QP / 16) * 16;
            unsigned int a[MT][4];
            const Element* const matrices = dys + slot * DY_STAGE + (row * QP + q0) * DY_PITCH + dy_matrix;
            #pragma unroll
            for (int m = 0; m < MT; ++m) ldmatrix_x4_trans(a[m], matrices + 16 * m);
            const Element* const windows = xs + slot * X_STAGE + row * STRIDE_H * PITCH + q0 * (STRIDE_W * C);
            #pragma unroll
            for (int i = 0; i < NP; ++i) {
                unsigned int word[4];
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    word[e] = *(const unsigned int*)(windows + word_at[i] + (e / 2 * 8 + e % 2) * (STRIDE_W * C));
                    // dy is 0 past the end of its row, but 0 * inf is NaN
                    if (!WHOLE_COLUMNS && q0 + 2 * j + e / 2 * 8 + e % 2 >= (int)p.out_w) word[e] = 0;
                }
                const unsigned int even0 = (word[0] & 0xffffu) | word[1] << 16, odd0 = word[0] >> 16 | (word[1] & 0xffff0000u);
                const unsigned int even1 = (word[2] & 0xffffu) | word[3] << 16, odd1 = word[2] >> 16 | (word[3] & 0xffff0000u);
                #pragma unroll
                for (int m = 0; m < MT; ++m) {
                    mma_sync<Element, true>(accum[m][i][0], a[m][0], a[m][1], a[m][2], a[m][3], even0, even1);
                    mma_sync<Element, true>(accum[m][i][1], a[m][0], a[m][1], a[m][2], a[m][3], odd0, odd1);
                }
            }
        }
        slot ^= 1;
    }
    cp_async_wait<0>();

    // Adds the warps along K in order, then stores the CTA's partial sum.
    constexpr int THREAD_SUMS = MT * NP * 8;
    float* const exchange = (float*)memory + (warp_n * THREAD_SUMS) * 32 + lane;
    #pragma unroll 1
    for (int from = 1; from < WARPS_K; ++from) {
        __syncthreads();
        if (warp_k == from)
            #pragma unroll
            for (int i = 0; i < THREAD_SUMS; ++i) exchange[i * 32] = accum[i / (8 * NP)][i / 8 % NP][i / 4 % 2][i % 4];
        __syncthreads();
        if (warp_k == 0)
            #pragma unroll
            for (int i = 0; i < THREAD_SUMS; ++i) accum[i / (8 * NP)][i / 8 % NP][i / 4 % 2][i % 4] += exchange[i * 32];
    }
    if (warp_k != 0) return;
    float* const to = p.partial + ((long long)blockIdx.x * gridDim.y + blockIdx.y) * (KT * COLUMNS);
    #pragma unroll
    for (int m = 0; m < MT; ++m)
        #pragma unroll
        for (int i = 0; i < NP; ++i)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float(&even)[4] = accum[m][i][0], (&odd)[4] = accum[m][i][1];
                const Vec<float, 4> vec{{even[2 * half], odd[2 * half], even[2 * half + 1], odd[2 * half + 1]}};
                store_vec<4>(to + (16 * m + g + 8 * half) * COLUMNS + (warp_n * NP + i) * 16 + 4 * j, vec);
            }
}

// The lanes of a warp are columns of one channel. Each of the REDUCE_WARPS warps adds every REDUCE_WARPS-th partial sum, in
// order.
extern "C" __global__ void __launch_bounds__(32 * REDUCE_WARPS) direct_stem_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ float shared[REDUCE_WARPS][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int column = (int)blockIdx.x * 32 + lane, k = (int)blockIdx.y;
    const int word = column / 2, r = word / WINDOW_WORDS, window_element = 2 * (word - r * WINDOW_WORDS) + column % 2 - LEADING_ELEMENT;
    const bool is_tap = column < COLUMNS && r < R && window_element >= 0 && window_element < S * C;
    float accum = 0.0f;
    if (is_tap) {
        const float* from = p.partial + (long long)k * COLUMNS + column;
        const long long warp_n = p.padded_channels * COLUMNS;
        #pragma unroll 8
        for (int i = slice; i < (int)p.splits; i += REDUCE_WARPS) accum += from[i * warp_n];
    }
    shared[slice][lane] = accum;
    __syncthreads();
    if (slice != 0 || !is_tap) return;
    #pragma unroll
    for (int i = 1; i < REDUCE_WARPS; ++i) accum += shared[i][lane];
    const int s = window_element / C, c = window_element - s * C;
    const int coord[6] = {0, k, c, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
    const float acc[1] = {accum};
    epilogue(p, coord, acc);
}
