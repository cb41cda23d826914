// Operand tiles in shared memory, and what a warp computes of them.
//
// A tile has rows of 16-byte chunks. Turned, a row is an index of the sum with the outer indices next to each other; else a
// row is an outer index with the sum's next to each other. Chunks are exchanged within rows so that eight rows' chunks at one
// place lie in different banks.

template <class T, int OUTER, bool IS_TURNED> struct TileOf {
    static constexpr int ROWS = IS_TURNED ? BK : OUTER, ROW_BYTES = (IS_TURNED ? OUTER : BK) * (int)sizeof(T);
    static constexpr int BYTES = ROWS * ROW_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16;  // of a row
    static constexpr int PER_LINE = CHUNKS < 8 ? 8 / CHUNKS : 1, MASK = (CHUNKS < 8 ? CHUNKS : 8) - 1;
    static_assert(ROW_BYTES % 16 == 0 && (CHUNKS & (CHUNKS - 1)) == 0, "rows of a power of two of chunks");
    static_assert(!IS_TURNED || sizeof(T) == 2, "matrices of 16-bit elements are turned while they are loaded");

    // What a row's chunks are exchanged by: the same for rows that differ by a multiple of 8.
    static __device__ __forceinline__ unsigned int exchange(unsigned int row) { return row / PER_LINE & MASK; }
    static __device__ __forceinline__ int at(int k, int outer) {
        const unsigned int row = IS_TURNED ? k : outer, byte = (IS_TURNED ? outer : k) * (int)sizeof(T);
        return (int)(row * ROW_BYTES + (byte / 16 ^ exchange(row)) * 16 + byte % 16);
    }
};

constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN;
constexpr int TILES_M = WM / 16, TILES_N = WN / 8;  // products of a warp
constexpr int DEPTH = 32 / (int)sizeof(A);          // of one product
constexpr int STEPS = BK / DEPTH;
static_assert(THREADS == 32 * WARPS_M * WARPS_N, "a warp for each part of the tile");
static_assert(TILES_N % 2 == 0, "two products' columns are loaded at once");

using TileA = TileOf<A, BM, TURNED_A>;
using TileB = TileOf<B, BN, TURNED_B>;
constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;

// Where a lane reads its rows of a warp's part. Sixteen outer indices are two matrices; the matrices of A come in the order
// (upper, lower) of the outer index first, those of B in that of the sum.
template <class Tile, bool IS_TURNED, bool IS_A> struct Reader {
    int row;             // bytes from the tile's start to the lane's first row
    unsigned int chunk;  // of that row, exchanged

    static __device__ __forceinline__ Reader of(int outer0) {
        const int lane = (int)threadIdx.x % 32, r = lane % 8;
        const int outer = IS_A ? lane / 8 % 2 : lane / 16, sum = IS_A ? lane / 16 : lane / 8 % 2;
        const unsigned int exchange = Tile::exchange((unsigned int)r);
        if constexpr (IS_TURNED) return {(sum * 8 + r) * Tile::ROW_BYTES, (unsigned int)(outer0 / 8 + outer) ^ exchange};
        else return {(outer0 + outer * 8 + r) * Tile::ROW_BYTES, (unsigned int)sum ^ exchange};
    }
    // Of sixteen outer indices. What is added to a chunk's number has bits of its own: it may be exchanged in as well.
    __device__ __forceinline__ int at(int step, int sixteen) const {
        if constexpr (IS_TURNED) return row + step * 16 * Tile::ROW_BYTES + (int)((chunk ^ (unsigned int)(2 * sixteen)) * 16);
        else return row + sixteen * 16 * Tile::ROW_BYTES + (int)((chunk ^ (unsigned int)(2 * step)) * 16);
    }
};
using ReaderA = Reader<TileA, TURNED_A, true>;
using ReaderB = Reader<TileB, TURNED_B, false>;

struct Fragments {
    unsigned int a[TILES_M][4], b[TILES_N / 2][4];
};

__device__ __forceinline__ void load_fragments(
    Fragments& to, const unsigned char* memory, int stage, int step, const ReaderA& a, const ReaderB& b
) {
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i) load_matrices<TURNED_A>(to.a[i], memory, stage + a.at(step, i));
    #pragma unroll
    for (int j = 0; j < TILES_N / 2; ++j) load_matrices<TURNED_B>(to.b[j], memory, stage + TileA::BYTES + b.at(step, j));
    if constexpr (same<A, float>) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            #pragma unroll
            for (int i = 0; i < TILES_M; ++i) to.a[i][e] = rounded_to_tf32(to.a[i][e]);
            #pragma unroll
            for (int j = 0; j < TILES_N / 2; ++j) to.b[j][e] = rounded_to_tf32(to.b[j][e]);
        }
    }
}

__device__ __forceinline__ void multiply(Accum (&sum)[TILES_M][TILES_N][4], const Fragments& of) {
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i)
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j)
            multiply_warp<A, B>(sum[i][j], of.a[i], of.b[j / 2][j % 2 * 2], of.b[j / 2][j % 2 * 2 + 1]);
}
