// Operand tiles in shared memory, ldmatrix from them, and the mma.sync instructions of a warp.
//
// A tile has rows of 16-byte vectors. In an MN-major tile a row is a k index and its outer indices are contiguous; otherwise a
// row is an outer index and its k indices are contiguous. An XOR swizzle of the vectors of a row lets ldmatrix read the same
// column of eight rows from different banks.

#include "ldmatrix.cuh"
#include "mma.cuh"

template <class T, int OUTER, bool MN_MAJOR> struct TileOf {
    static constexpr int ROWS = MN_MAJOR ? TILE_K : OUTER, ROW_BYTES = (MN_MAJOR ? OUTER : TILE_K) * (int)sizeof(T);
    static constexpr int BYTES = ROWS * ROW_BYTES;
    static constexpr int ROW_VECS = ROW_BYTES / 16;  // 16-byte vectors of a row
    static constexpr int ROWS_PER_LINE = ROW_VECS < 8 ? 8 / ROW_VECS : 1, SWIZZLE_MASK = (ROW_VECS < 8 ? ROW_VECS : 8) - 1;
    static_assert(ROW_BYTES % 16 == 0 && (ROW_VECS & (ROW_VECS - 1)) == 0, "rows of a power of two of chunks");
    static_assert(!MN_MAJOR || sizeof(T) == 2, "ldmatrix.trans transposes 16-bit elements only");

    // The XOR mask of a row; rows that differ by a multiple of 8 have the same mask.
    static __device__ __forceinline__ unsigned int swizzle(unsigned int row) { return row / ROWS_PER_LINE & SWIZZLE_MASK; }
    static __device__ __forceinline__ int at(int k, int outer) {
        const unsigned int row = MN_MAJOR ? k : outer, byte = (MN_MAJOR ? outer : k) * (int)sizeof(T);
        return (int)(row * ROW_BYTES + (byte / 16 ^ swizzle(row)) * 16 + byte % 16);
    }
};

constexpr int WARPS_M = TILE_M / WARP_M, WARPS_N = TILE_N / WARP_N;
constexpr int MMA_TILES_M = WARP_M / 16, MMA_TILES_N = WARP_N / 8;  // mma instructions of a warp for one k step
constexpr int MMA_K = 32 / (int)sizeof(A);          // k elements of one mma instruction
constexpr int MMA_STEPS = TILE_K / MMA_K;
static_assert(THREADS == 32 * WARPS_M * WARPS_N, "a warp for each load_slice of the tile");
static_assert(MMA_TILES_N % 2 == 0, "one ldmatrix.x4 loads the columns of two mma instructions");

using TileA = TileOf<A, TILE_M, A_MN_MAJOR>;
using TileB = TileOf<B, TILE_N, B_MN_MAJOR>;
constexpr int STAGE_BYTES = TileA::BYTES + TileB::BYTES;

// The addresses that a lane hands to ldmatrix.x4 for its warp's tile. Sixteen outer indices are two 8x8 matrices. The four
// matrices of A are ordered by outer index first, and the four matrices of B by k first.
template <class Tile, bool MN_MAJOR, bool IS_A> struct Reader {
    int row;             // bytes from the tile's start to the lane's first row
    unsigned int vec;  // swizzled vector in that row

    static __device__ __forceinline__ Reader of(int outer0) {
        const int lane = (int)threadIdx.x % 32, r = lane % 8;
        const int outer = IS_A ? lane / 8 % 2 : lane / 16, accum = IS_A ? lane / 16 : lane / 8 % 2;
        const unsigned int swizzle = Tile::swizzle((unsigned int)r);
        if constexpr (MN_MAJOR) return {(accum * 8 + r) * Tile::ROW_BYTES, (unsigned int)(outer0 / 8 + outer) ^ swizzle};
        else return {(outer0 + outer * 8 + r) * Tile::ROW_BYTES, (unsigned int)accum ^ swizzle};
    }
    // The address for sixteen outer indices. The step and the vector number occupy different bits, so XOR adds them.
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
    for (int i = 0; i < MMA_TILES_M; ++i) ldmatrix_x4<A_MN_MAJOR>(to.a[i], memory, stage + a.at(step, i));
    #pragma unroll
    for (int j = 0; j < MMA_TILES_N / 2; ++j) ldmatrix_x4<B_MN_MAJOR>(to.b[j], memory, stage + TileA::BYTES + b.at(step, j));
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
