// Data gradient of a first layer: dx of few channels (1 to 4), on tensor cores.
//
// Pixels of dx are dealt to tiles of SH x SW: position m of dy's grid owns pixels SH * m + a, SW * m + b. All of a
// tile's SH * SW * C numbers are sums over one window of dy, TAPS_H x TAPS_W x K: a convolution of unit stride whose
// columns are (a, b, c). Where the window has a place that no tap of a column reaches, its weight is 0; rows of the
// window that no tap of any b reaches are left out. 0 times infinity is NaN: sums that are NaN are made anew, tap by
// tap.
//
// Blocks stay: weights are made once, as the products' fragments. A step is ROWS rows of tiles, 16 * MT wide; a warp
// has RW rows, 16 wide. Rows of dy are in a ring in shared memory: those of the next step arrive beside the products.

constexpr int KS = KP / 16;
constexpr int NW = (SW * C + 7) / 8, NT = SH * NW;
constexpr int ROWS = RW * ROW_PARTS, WINDOW = ROWS + TAPS_H - 1, SLOTS = WINDOW + ROWS;
constexpr int PX = 16 * MT + TAPS_W - 1;
constexpr int PITCH = KP + 8;  // an odd number of 16 bytes: rows of a matrix are in different banks
constexpr int ROW = PX * PITCH;
constexpr int COLUMNS = SW * C;
static_assert(THREADS == 32 * MT * ROW_PARTS, "a warp for each part of a step");

constexpr int tap_h(int a, int d) { return a + BASE_H - SH * d; }
constexpr int tap_w(int b, int e) { return b + BASE_W - SW * e; }
constexpr bool reaches(int a, int d) { return tap_h(a, d) >= 0 && tap_h(a, d) < R; }

#ifndef __CUDA_ARCH__
inline void emulated_rows(void** places, unsigned) {
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            const unsigned short* row = ((Matrices*)places[8 * i + lane / 4])->row;
            ((Matrices*)places[lane])->result[i] = row[lane % 4 * 2] | (unsigned int)row[lane % 4 * 2 + 1] << 16;
        }
}
#endif

// Four 8x8 matrices of 16-bit elements from shared memory. Lane 8 * i + r gives the address of row r of matrix i, 16
// bytes; lane 4 * g + j gets, of each, columns 2j and 2j + 1 of row g.
__device__ __forceinline__ void load_matrices(unsigned int (&to)[4], const void* row) {
#ifdef __CUDA_ARCH__
    const unsigned int from = (unsigned int)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
#else
    Matrices mine{(const unsigned short*)row, {}};
    emulated_together(32, &mine, emulated_rows);
    for (int i = 0; i < 4; ++i) to[i] = mine.result[i];
#endif
}

__device__ __forceinline__ const Element* filter_at(const Params& p, int k, int c, int r, int s) {
    return p.filter + k * p.filter_k + c * p.filter_c + (FLIP ? R - 1 - r : r) * p.filter_r +
           (FLIP ? S - 1 - s : s) * p.filter_s;
}

// COUNT rows of dy from row `first` and column `column` on, into the ring from `slot` on.
template <int COUNT>
__device__ __forceinline__ void fetch(const Params& p, Element* ring, int slot, int n, int first, int column) {
    constexpr int PIECES = KP / CHUNK;
    const Element* const image = p.dy + n * p.dy_n;
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < COUNT * PX * PIECES; i += THREADS) {
        const int row = i / (PX * PIECES), rest = i - row * (PX * PIECES), x = rest / PIECES;
        const int k = (rest - x * PIECES) * CHUNK;
        const int h = first + row, w = column + x;
        const bool inside = (unsigned int)h < (unsigned int)p.out_h && (unsigned int)w < (unsigned int)p.out_w && k < K;
        const int place = slot + row < SLOTS ? slot + row : slot + row - SLOTS;
        copy_async<CHUNK * (int)sizeof(Element)>(
            ring + place * ROW + x * PITCH + k, inside ? image + h * p.dy_h + w * p.dy_w + k : p.dy, inside
        );
    }
}

// One number of dx with the taps that reach it alone.
__device__ __forceinline__ float sum_again(const Params& p, int n, int c, int h, int w) {
    float sum = 0.0f;
    const int a = h % SH, b = w % SW;
    #pragma unroll 1
    for (int d = 0; d < TAPS_H; ++d) {
        const int r = tap_h(a, d), from_h = h / SH + LOW_H + d;
        if (r < 0 || r >= R || (unsigned int)from_h >= (unsigned int)p.out_h) continue;
        #pragma unroll 1
        for (int e = 0; e < TAPS_W; ++e) {
            const int s = tap_w(b, e), from_w = w / SW + LOW_W + e;
            if (s < 0 || s >= S || (unsigned int)from_w >= (unsigned int)p.out_w) continue;
            const Element* const from = p.dy + n * p.dy_n + from_h * p.dy_h + from_w * p.dy_w;
            #pragma unroll 1
            for (int k = 0; k < K; ++k) sum = fmaf(widen<float>(from[k]), widen<float>(*filter_at(p, k, c, r, s)), sum);
        }
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_stem_dgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const ring = (Element*)memory;
    uint2* const weights = (uint2*)(ring + SLOTS * ROW);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float* const slab = (float*)(weights + TAPS_W * KS * TAPS_H * NT * 32) + warp * (16 * COLUMNS);
    const int g = lane / 4, j = lane % 4;
    const int part = warp / MT, across = warp % MT * 16;

    for (int i = (int)threadIdx.x; i < TAPS_W * KS * TAPS_H * NT * 32; i += THREADS) {
        const int t = i / 32 % NT, d = i / (32 * NT) % TAPS_H, slice = i / (32 * NT * TAPS_H);
        const int column = t % NW * 8 + i % 32 / 4, b = column / C, c = column - b * C;
        const int r = tap_h(t / NW, d), s = tap_w(b, slice / KS);
        const bool is_tap = column < COLUMNS && r >= 0 && r < R && s >= 0 && s < S;
        const int first = slice % KS * 16 + i % 4 * 2;
        unsigned int both[2] = {0, 0};
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int k = first + e / 2 * 8 + e % 2;
            if (is_tap && k < K) both[e / 2] |= (unsigned int)filter_at(p, k, c, r, s)->bits << 16 * (e % 2);
        }
        weights[i] = uint2{both[0], both[1]};
    }

    unsigned int step = blockIdx.x * (unsigned int)p.share;
    const unsigned int behind = step + (unsigned int)p.share, end = behind < (unsigned int)p.steps ? behind : (unsigned int)p.steps;
    int head = 0;
    bool is_fresh = true;
    #pragma unroll 1
    for (; step < end; ++step) {
        const unsigned int strip = step / (unsigned int)p.steps_down, down = step - strip * (unsigned int)p.steps_down;
        const int n = (int)(strip / (unsigned int)p.steps_across);
        const int column0 = (int)(strip % (unsigned int)p.steps_across) * (16 * MT), row0 = (int)down * ROWS;
        if (is_fresh) {
            __syncthreads();
            fetch<WINDOW>(p, ring, head, n, row0 + LOW_H, column0 + LOW_W);
            commit_copies();
        }
        await_copies<0>();
        __syncthreads();
        is_fresh = step + 1 == end || down + 1 == (unsigned int)p.steps_down;
        if (!is_fresh) {
            const int next = head + WINDOW < SLOTS ? head + WINDOW : head + WINDOW - SLOTS;
            fetch<ROWS>(p, ring, next, n, row0 + LOW_H + WINDOW, column0 + LOW_W);
            commit_copies();
        }

        int from[RW + TAPS_H - 1];
        #pragma unroll
        for (int i = 0; i < RW + TAPS_H - 1; ++i) {
            const int slot = head + part * RW + i;
            from[i] = (slot < SLOTS ? slot : slot - SLOTS) * ROW + (across + lane % 16) * PITCH + lane / 16 * 8;
        }
        float sum[RW][NT][4];
        #pragma unroll
        for (int i = 0; i < RW; ++i)
            #pragma unroll
            for (int t = 0; t < NT; ++t)
                #pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][t][e] = 0.0f;
        #pragma unroll 1
        for (int e = 0; e < TAPS_W; ++e) {
            #pragma unroll UNROLL
            for (int slice = 0; slice < KS; ++slice) {
                const uint2* const here = weights + (e * KS + slice) * (TAPS_H * NT * 32) + lane;
                uint2 weight[TAPS_H][NT];
                #pragma unroll
                for (int d = 0; d < TAPS_H; ++d)
                    #pragma unroll
                    for (int t = 0; t < NT; ++t)
                        if (reaches(t / NW, d)) weight[d][t] = here[(d * NT + t) * 32];
                #pragma unroll
                for (int i = 0; i < RW + TAPS_H - 1; ++i) {
                    unsigned int a[4];
                    load_matrices(a, ring + from[i] + e * PITCH + slice * 16);
                    #pragma unroll
                    for (int row = 0; row < RW; ++row) {
                        const int d = i - row;
                        if (d < 0 || d >= TAPS_H) continue;
                        #pragma unroll
                        for (int t = 0; t < NT; ++t)
                            if (reaches(t / NW, d))
                                warp_product<Element, true>(
                                    sum[row][t], a[0], a[1], a[2], a[3], weight[d][t].x, weight[d][t].y
                                );
                    }
                }
            }
        }

        // A row of dx at a time, so that neighbouring lanes store neighbouring numbers.
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
                        if (column < COLUMNS) slab[(g + e / 2 * 8) * COLUMNS + column] = sum[i / SH][i % SH * NW + t][e];
                    }
            }
            __syncwarp();
            const int h = (row0 + part * RW + pass / SH) * SH + pass % SH;
            if (h >= (int)p.in_h) continue;
            #pragma unroll 1
            for (int i = lane; i < 16 * COLUMNS; i += 32) {
                const int pixel = i / COLUMNS, column = i - pixel * COLUMNS, b = column / C;
                const int at[4] = {n, column - b * C, h, (column0 + across + pixel) * SW + b};
                if (at[3] >= (int)p.in_w) continue;
                float acc[1] = {slab[i]};
                if (acc[0] != acc[0]) acc[0] = sum_again(p, n, at[1], h, at[3]);
                epilogue(p, at, acc);
            }
        }
        head = head + ROWS < SLOTS ? head + ROWS : head + ROWS - SLOTS;
    }
}
