// Rows of an image of few channels in shared memory, and the windows of its pixels: see direct_stem.cu.

constexpr int WINDOW = S * C;
constexpr int APART = STRIDE_W * C % 2 ? 2 : 1;  // pixels from row to row of a product
constexpr bool HAS_LEAD = LEAD || APART == 2;
constexpr int DEPTH = (WINDOW + HAS_LEAD + 7) / 8 * 8;  // of one filter row
constexpr int SLICES = R * (DEPTH / 8);             // of depth 8
constexpr int IN_ROWS = (TP - 1) * STRIDE_H + R;
constexpr int STAGE = IN_ROWS * PITCH;              // elements
constexpr int NEXT = STRIDE_W * C * APART;          // elements from row to row of a product

// Rows of one tile: element `image column * C + BEFORE` of a row; zeros stay on both sides.
__device__ __forceinline__ void fetch(const Params& p, Element* rows, unsigned int tile) {
    const int n = (int)(tile / (unsigned int)p.row_tiles);
    const int h0 = (int)(tile % (unsigned int)p.row_tiles) * (TP * STRIDE_H) - (int)p.pad_h;
    const int pieces = (int)p.row_pieces;
    const Element* const image = p.x + n * p.x_n;
    #pragma unroll 1
    for (int r = (int)threadIdx.x / 32; r < IN_ROWS; r += THREADS / 32) {  // a warp takes a row
        const int h = h0 + r;
        const bool inside = (unsigned int)h < (unsigned int)p.in_h;
        const Element* const from = image + (inside ? h * p.x_h : 0);
        #pragma unroll 1
        for (int piece = (int)threadIdx.x % 32; piece < pieces; piece += 32)
            copy_async<CHUNK * (int)sizeof(Element)>(rows + r * PITCH + BEFORE + piece * CHUNK, from + piece * CHUNK, inside);
    }
}

// Two neighbours; the address is even.
__device__ __forceinline__ unsigned int pair_at(const Element* at) { return *(const unsigned int*)at; }

// A weight as it is multiplied.
__device__ __forceinline__ Element of_filter(Filter x) {
    if constexpr (same<Element, Filter>) return x;
    else return narrow<Element>(widen<float>(x));
}
