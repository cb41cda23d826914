// Filter gradient of a first layer: x of few channels (1 to 4), channels last, on tensor cores.
//
// A product of dy, turned (channels k x pixels), and of windows (pixels x numbers of a window): with channels last, the
// window of one filter row is neighbouring numbers of x, from which words of two are read; a word of pixel q and of
// pixel q + 1 make a pair of each of two columns. Columns are therefore counted in words: word i of the R windows of
// WORDS words. Where windows begin at an odd place, one number before them is taken along (LEAD).
//
// Blocks stay. A stage is TP rows of dy, whole, with the rows of x beneath them; the next stage arrives beside the
// products. A block's warps are NPARTS parts of the words times GROUPS shares of the pixels. What blocks leave is added in
// their order by the second kernel.

constexpr int IN_ROWS = (TP - 1) * STRIDE_H + R;
constexpr int KT = 16 * MT;          // channels of a block
constexpr int DY_PITCH = KT + 8;     // an odd number of 16 bytes
constexpr int X_STAGE = IN_ROWS * PITCH, DY_STAGE = TP * QP * DY_PITCH;
constexpr int PAIRS = NPARTS * NP;   // of products 8 columns wide: 8 words
constexpr int COLUMNS = 16 * PAIRS;
static_assert(THREADS == 32 * NPARTS * GROUPS, "a warp for each part and share");
static_assert(STRIDE_W * C % 2 == 0, "windows of neighbouring pixels begin at even distances");

__device__ __forceinline__ void fetch(const Params& p, Element* xs, Element* dys, unsigned int stage, int channel0) {
    const int n = (int)(stage / (unsigned int)p.row_stages), out0 = (int)(stage % (unsigned int)p.row_stages) * TP;
    const int h0 = out0 * STRIDE_H - (int)p.pad_h, pieces = (int)p.row_pieces;
    const Element* const image = p.x + n * p.x_n;
    #pragma unroll 1
    for (int r = (int)threadIdx.x / 32; r < IN_ROWS; r += THREADS / 32) {  // a warp takes a row
        const int h = h0 + r;
        const bool inside = (unsigned int)h < (unsigned int)p.in_h;
        const Element* const from = image + (inside ? h * p.x_h : 0);
        #pragma unroll 1
        for (int piece = (int)threadIdx.x % 32; piece < pieces; piece += 32)
            copy_async<CHUNK * (int)sizeof(Element)>(xs + r * PITCH + BEFORE + piece * CHUNK, from + piece * CHUNK, inside);
    }
    constexpr int EACH = KT / DY_CHUNK;
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < TP * QP * EACH; i += THREADS) {
        const int row = i / (QP * EACH), rest = i - row * (QP * EACH), q = rest / EACH, k = (rest - q * EACH) * DY_CHUNK;
        const bool inside = out0 + row < (int)p.out_h && q < (int)p.out_w && channel0 + k < (int)p.channels_out;
        copy_async<DY_CHUNK * (int)sizeof(Element)>(
            dys + (row * QP + q) * DY_PITCH + k,
            inside ? p.dy + n * p.dy_n + (out0 + row) * p.dy_h + q * p.dy_w + channel0 + k : p.dy, inside
        );
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_stem_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Element* const xs = (Element*)memory;
    Element* const dys = xs + 2 * X_STAGE;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int g = lane / 4, j = lane % 4;
    const int part = warp % NPARTS, share = warp / NPARTS;
    const int channel0 = (int)blockIdx.y * KT;

    {  // zeros around the rows
        const int inner = (int)p.row_pieces * CHUNK, outer = PITCH - inner;
        for (int i = threadIdx.x; i < 2 * IN_ROWS * outer; i += THREADS) {
            const int r = i / outer, e = i - r * outer;
            xs[r * PITCH + (e < BEFORE ? e : e + inner)].bits = 0;
        }
    }
    unsigned int stage = blockIdx.x;
    if (stage < (unsigned int)p.stages) fetch(p, xs, dys, stage, channel0);
    commit_copies();

    int word_at[NP];  // this lane's words, in the rows of a pixel's window
    #pragma unroll
    for (int i = 0; i < NP; ++i) {
        const int word = (part * NP + i) * 8 + g, r = word / WORDS;
        word_at[i] = r < R ? r * PITCH + (int)p.window + 2 * (word - r * WORDS) + 2 * j * (STRIDE_W * C) : 0;
    }
    const int make_desc = (lane / 16 * 8 + lane % 8) * DY_PITCH + lane / 8 % 2 * 8;

    float sum[MT][NP][2][4];
    #pragma unroll
    for (int m = 0; m < MT; ++m)
        #pragma unroll
        for (int i = 0; i < 2 * NP; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[m][i / 2][i % 2][e] = 0.0f;

    int slot = 0;
    #pragma unroll 1
    for (; stage < (unsigned int)p.stages; stage += gridDim.x) {
        await_copies<0>();
        __syncthreads();
        if (stage + gridDim.x < (unsigned int)p.stages)
            fetch(p, xs + (slot ^ 1) * X_STAGE, dys + (slot ^ 1) * DY_STAGE, stage + gridDim.x, channel0);
        commit_copies();
        const int rows_left = (int)p.out_h - (int)(stage % (unsigned int)p.row_stages) * TP;
        const int rows = rows_left < TP ? rows_left : TP;
        #pragma unroll 1
        for (int at = share; at < rows * (QP / 16); at += GROUPS) {
            const int row = at / (QP / 16), q0 = at % (QP / 16) * 16;
            unsigned int a[MT][4];
            const Element* const matrices = dys + slot * DY_STAGE + (row * QP + q0) * DY_PITCH + make_desc;
            #pragma unroll
            for (int m = 0; m < MT; ++m) load_transposed(a[m], matrices + 16 * m);
            const Element* const windows = xs + slot * X_STAGE + row * STRIDE_H * PITCH + q0 * (STRIDE_W * C);
            #pragma unroll
            for (int i = 0; i < NP; ++i) {
                unsigned int word[4];
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    word[e] = *(const unsigned int*)(windows + word_at[i] + (e / 2 * 8 + e % 2) * (STRIDE_W * C));
                    // dy is 0 beyond its row, but 0 times infinity is not
                    if (!EXACT && q0 + 2 * j + e / 2 * 8 + e % 2 >= (int)p.out_w) word[e] = 0;
                }
                const unsigned int even0 = (word[0] & 0xffffu) | word[1] << 16, odd0 = word[0] >> 16 | (word[1] & 0xffff0000u);
                const unsigned int even1 = (word[2] & 0xffffu) | word[3] << 16, odd1 = word[2] >> 16 | (word[3] & 0xffff0000u);
                #pragma unroll
                for (int m = 0; m < MT; ++m) {
                    warp_product<Element, true>(sum[m][i][0], a[m][0], a[m][1], a[m][2], a[m][3], even0, even1);
                    warp_product<Element, true>(sum[m][i][1], a[m][0], a[m][1], a[m][2], a[m][3], odd0, odd1);
                }
            }
        }
        slot ^= 1;
    }
    await_copies<0>();

    // Shares of the pixels, in order, then the block's part.
    constexpr int OWN = MT * NP * 8;
    float* const exchange = (float*)memory + (part * OWN) * 32 + lane;
    #pragma unroll 1
    for (int from = 1; from < GROUPS; ++from) {
        __syncthreads();
        if (share == from)
            #pragma unroll
            for (int i = 0; i < OWN; ++i) exchange[i * 32] = sum[i / (8 * NP)][i / 8 % NP][i / 4 % 2][i % 4];
        __syncthreads();
        if (share == 0)
            #pragma unroll
            for (int i = 0; i < OWN; ++i) sum[i / (8 * NP)][i / 8 % NP][i / 4 % 2][i % 4] += exchange[i * 32];
    }
    if (share != 0) return;
    float* const to = p.partial + ((long long)blockIdx.x * gridDim.y + blockIdx.y) * (KT * COLUMNS);
    #pragma unroll
    for (int m = 0; m < MT; ++m)
        #pragma unroll
        for (int i = 0; i < NP; ++i)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float(&even)[4] = sum[m][i][0], (&odd)[4] = sum[m][i][1];
                const Vec<float, 4> four{{even[2 * half], odd[2 * half], even[2 * half + 1], odd[2 * half + 1]}};
                store_vec<4>(to + (16 * m + g + 8 * half) * COLUMNS + (part * NP + i) * 16 + 4 * j, four);
            }
}

// A warp's lanes are columns of one channel; its warps add every SLICES-th part each, in order.
extern "C" __global__ void __launch_bounds__(32 * SLICES) direct_stem_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ float shared[SLICES][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int column = (int)blockIdx.x * 32 + lane, k = (int)blockIdx.y;
    const int word = column / 2, r = word / WORDS, place = 2 * (word - r * WORDS) + column % 2 - LEAD;
    const bool is_tap = column < COLUMNS && r < R && place >= 0 && place < S * C;
    float sum = 0.0f;
    if (is_tap) {
        const float* from = p.partial + (long long)k * COLUMNS + column;
        const long long part = p.padded_channels * COLUMNS;
        #pragma unroll 8
        for (int i = slice; i < (int)p.parts; i += SLICES) sum += from[i * part];
    }
    shared[slice][lane] = sum;
    __syncthreads();
    if (slice != 0 || !is_tap) return;
    #pragma unroll
    for (int i = 1; i < SLICES; ++i) sum += shared[i][lane];
    const int s = place / C, c = place - s * C;
    const int at[6] = {0, k, c, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
    const float acc[1] = {sum};
    epilogue(p, at, acc);
}
