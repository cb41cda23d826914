// The accumulator tile of a CTA on CUDA cores, TM x TN for each thread: the rows and columns that a thread holds.

constexpr int THREADS_M = TILE_M / TM, THREADS_N = TILE_N / TN;
constexpr int PITCH_A = TILE_M + PAD, PITCH_B = TILE_N + PAD;
constexpr int GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4;  // contiguous rows and columns of a thread
static_assert(THREADS == THREADS_M * THREADS_N, "one thread per register tile");

// The coordinate of a thread among the register tiles of its CTA. Where the tile allows, a warp covers 4 x 8 register tiles,
// and neighbouring lanes share columns: the 16-byte reads of a half warp then have no bank conflicts.
struct ThreadCoord { int m, n; };

__device__ __forceinline__ ThreadCoord thread_coord() {
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    if constexpr (THREADS_N % 8 == 0 && THREADS_M % 4 == 0) {
        constexpr int WARPS_N = THREADS_N / 8;
        return {warp / WARPS_N * 4 + (lane & 1) + (lane >> 4) * 2, warp % WARPS_N * 8 + (lane >> 1) % 8};
    }
    return {thread / THREADS_N, thread % THREADS_N};
}

// The row of a thread's i-th, and the column of its j-th register.
__device__ __forceinline__ int row_of(const ThreadCoord& at, int i) { return i / GM * (TILE_M / (TM / GM)) + at.m * GM + i % GM; }
__device__ __forceinline__ int column_of(const ThreadCoord& at, int j) { return j / GN * (TILE_N / (TN / GN)) + at.n * GN + j % GN; }
