// Operand tiles in shared memory, and what a warp computes of them.
//
// A tile has rows of 16-byte chunks. Turned, a row is an index of the sum with the outer indices next to each other; else a
// row is an outer index with the sum's next to each other. Chunks are exchanged within rows so that eight rows' chunks at one
// place lie in different banks.

template <class T, int OUTER, bool MN_MAJOR> struct TileOf {
    static constexpr int ROWS = MN_MAJOR ? TILE_K : OUTER, ROW_BYTES = (MN_MAJOR ? OUTER : TILE_K) * (int)sizeof(T);
    static constexpr int BYTES = ROWS * ROW_BYTES;
    static constexpr int ROW_VECS = ROW_BYTES / 16;  // of a row
    static constexpr int ROWS_PER_LINE = ROW_VECS < 8 ? 8 / ROW_VECS : 1, SWIZZLE_MASK = (ROW_VECS < 8 ? ROW_VECS : 8) - 1;
    static_assert(ROW_BYTES % 16 == 0 && (ROW_VECS & (ROW_VECS - 1)) == 0, "rows of a power of two of chunks");
    static_assert(!MN_MAJOR || sizeof(T) == 2, "matrices of 16-bit elements are turned while they are loaded");

    // What a row's chunks are exchanged by: the same for rows that differ by a multiple of 8.
    static __device__ __forceinline__ unsigned int swizzle(unsigned int row) { return row / ROWS_PER_LINE & SWIZZLE_MASK; }
    static __device__ __forceinline__ int at(int k, int outer) {
        const unsigned int row = MN_MAJOR ? k : outer, byte = (MN_MAJOR ? outer : k) * (int)sizeof(T);
        return (int)(row * ROW_BYTES + (byte / 16 ^ swizzle(row)) * 16 + byte % 16);
    }
};

constexpr int WARPS_M = TILE_M / WARP_M, WARPS_N = TILE_N / WARP_N;
constexpr int MMA_TILES_M = WARP_M / 16, MMA_TILES_N = WARP_N / 8;  // products of a warp
constexpr int MMA_K = 32 / (int)sizeof(A);          // of one product
constexpr int MMA_STEPS = TILE_K / MMA_K;
static_assert(THREADS == 32 * WARPS_M * WARPS_N, "a warp for each load_slice of the tile");
static_assert(MMA_TILES_N % 2 == 0, "two products' columns are loaded at once");

using TileA = TileOf<A, TILE_M, A_MN_MAJOR>;
using TileB = TileOf<B, TILE_N, B_MN_MAJOR>;
constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;

// Where a lane reads its rows of a warp's part. Sixteen outer indices are two matrices; the matrices of A come in the order
// (upper, lower) of the outer index first, those of B in that of the sum.
template <class Tile, bool MN_MAJOR, bool IS_A> struct Reader {
    int row;             // bytes from the tile's start to the lane's first row
    unsigned int vec;  // of that row, exchanged

    static __device__ __forceinline__ Reader of(int outer0) {
        const int lane = (int)threadIdx.x % 32, r = lane % 8;
        const int outer = IS_A ? lane / 8 % 2 : lane / 16, accum = IS_A ? lane / 16 : lane / 8 % 2;
        const unsigned int swizzle = Tile::swizzle((unsigned int)r);
        if constexpr (MN_MAJOR) return {(accum * 8 + r) * Tile::ROW_BYTES, (unsigned int)(outer0 / 8 + outer) ^ swizzle};
        else return {(outer0 + outer * 8 + r) * Tile::ROW_BYTES, (unsigned int)accum ^ swizzle};
    }
    // Of sixteen outer indices. What is added to a chunk's number has bits of its own: it may be exchanged in as well.
    __device__ __forceinline__ int at(int step, int mma_index) const {
        if constexpr (MN_MAJOR) return row + step * 16 * Tile::ROW_BYTES + (int)((vec ^ (unsigned int)(2 * mma_index)) * 16);
        else return row + mma_index * 16 * Tile::ROW_BYTES + (int)((vec ^ (unsigned int)(2 * step)) * 16);
    }
};
using ReaderA = Reader<TileA, A_MN_MAJOR, true>;
using ReaderB = Reader<TileB, B_MN_MAJOR, false>;

struct Fragments {
    unsigned int a[MMA_TILES_M][4], b[MMA_TILES_N / 2][4];
};

__device__ __forceinline__ void load_fragments(
    Fragments& to, const unsigned char* memory, int stage, int step, const ReaderA& a, const ReaderB& b
) {
    #pragma unroll
    for (int i = 0; i < MMA_TILES_M; ++i) load_matrices<A_MN_MAJOR>(to.a[i], memory, stage + a.at(step, i));
    #pragma unroll
    for (int j = 0; j < MMA_TILES_N / 2; ++j) load_matrices<B_MN_MAJOR>(to.b[j], memory, stage + TileA::BYTES + b.at(step, j));
    if constexpr (same<A, float>) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            #pragma unroll
            for (int i = 0; i < MMA_TILES_M; ++i) to.a[i][e] = rounded_to_tf32(to.a[i][e]);
            #pragma unroll
            for (int j = 0; j < MMA_TILES_N / 2; ++j) to.b[j][e] = rounded_to_tf32(to.b[j][e]);
        }
    }
}

__device__ __forceinline__ void mma_warp_tile(Accum (&accum)[MMA_TILES_M][MMA_TILES_N][4], const Fragments& of) {
    #pragma unroll
    for (int i = 0; i < MMA_TILES_M; ++i)
        #pragma unroll
        for (int j = 0; j < MMA_TILES_N; ++j)
            multiply_warp<A, B>(accum[i][j], of.a[i], of.b[j / 2][j % 2 * 2], of.b[j / 2][j % 2 * 2 + 1]);
}
