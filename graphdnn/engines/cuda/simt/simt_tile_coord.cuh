// A tile of a product in the registers of a block's threads, TM x TN each: which rows and columns are whose.

constexpr int THREADS_M = TILE_M / TM, THREADS_N = TILE_N / TN;
constexpr int PITCH_A = TILE_M + PAD, PITCH_B = TILE_N + PAD;
constexpr int GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4;  // neighbours in one group of a thread's rows and columns
static_assert(THREADS == THREADS_M * THREADS_N, "one thread per register tile");

// A thread's place among those of its block. Where it fits, a warp covers 4 x 8 register tiles, with neighbouring
// lanes on the same columns: 16-byte reads of a half warp are then one pass over the banks.
struct ThreadCoord { int m, n; };

__device__ __forceinline__ ThreadCoord thread_coord() {
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    if constexpr (THREADS_N % 8 == 0 && THREADS_M % 4 == 0) {
        constexpr int WARPS_N = THREADS_N / 8;
        return {warp / WARPS_N * 4 + (lane & 1) + (lane >> 4) * 2, warp % WARPS_N * 8 + (lane >> 1) % 8};
    }
    return {thread / THREADS_N, thread % THREADS_N};
}

// Which rows and columns of the tile its registers hold.
__device__ __forceinline__ int row_of(const ThreadCoord& at, int i) { return i / GM * (TILE_M / (TM / GM)) + at.m * GM + i % GM; }
__device__ __forceinline__ int column_of(const ThreadCoord& at, int j) { return j / GN * (TILE_N / (TN / GN)) + at.n * GN + j % GN; }
