// Rows of an image of few channels in shared memory: see direct_stem.cu.

constexpr int WINDOW = S * C;
constexpr int IN_ROWS = (TP - 1) * STRIDE_H + R;
constexpr int STAGE = IN_ROWS * PITCH;              // elements
// Copies of less than 4 bytes pass through registers: several of them wait together.
[[maybe_unused]] constexpr int AT_ONCE = CHUNK * sizeof(Element) < 4 ? 8 : 1;

// Rows of one tile, by so many threads: element `image column * C + BEFORE` of a row; zeros stay on both sides.
template <int COUNT = THREADS>
__device__ __forceinline__ void fetch(const Params& p, Element* rows, unsigned int tile, int thread = (int)threadIdx.x) {
    const int n = (int)(tile / (unsigned int)p.row_tiles);
    const int h0 = (int)(tile % (unsigned int)p.row_tiles) * (TP * STRIDE_H) - (int)p.pad_h;
    const int pieces = (int)p.row_pieces;
    const Element* const image = p.x + n * p.x_n;
    #pragma unroll 1
    for (int r = thread / 32; r < IN_ROWS; r += COUNT / 32) {  // a warp takes a row
        const int h = h0 + r;
        const bool inside = (unsigned int)h < (unsigned int)p.in_h;
        const Element* const from = image + (inside ? h * p.x_h : 0);
        #pragma unroll AT_ONCE
        for (int piece = thread % 32; piece < pieces; piece += 32)
            copy_async<CHUNK * (int)sizeof(Element)>(rows + r * PITCH + BEFORE + piece * CHUNK, from + piece * CHUNK, inside);
    }
}

// Zeros around the rows of all stages.
__device__ __forceinline__ void clear_margins(const Params& p, Element* rows) {
    const int inner = (int)p.row_pieces * CHUNK, outer = PITCH - inner;
    for (int i = threadIdx.x; i < STAGES * IN_ROWS * outer; i += THREADS) {
        const int r = i / outer, e = i - r * outer;
        rows[r * PITCH + (e < BEFORE ? e : e + inner)] = Element();
    }
}
