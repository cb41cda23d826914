// Batched GEMM on CUDA cores for every type: C[row, column] = sum over k of A[row, k] * B[k, column].
//
// Rows are the axis M and columns the axis N, or the other way round where SWAPPED, so that stores are contiguous along the
// columns. A batch index of c has BATCH axes; consecutive batches may share a matrix of a or b.
//
// Tile:     TILE_M x TILE_N for a CTA, TM x TN accumulators for a thread; a K tile has TILE_K elements.
// Pipeline: two shared-memory stages; global loads of the next K tile wait in registers during the multiply-adds.
// Epilogue: through shared memory (epilogue_via_smem.cuh), or partial sums for matmul_splits where SPLIT.
//
// Required constants (from the generator):
//   TILE_M, TILE_N, TILE_K, TM, TN, SWAPPED, SPLIT: see above; PAD: elements of padding of a row in shared memory.
//   VEC_WIDTH: elements of a vector store, 1 or more; THREADS: threads of a CTA.
//   CTAS_PER_SM: CTAs that must fit on an SM; RANK: axes of c, 2 or more.
//   A_K_MAJOR, B_K_MAJOR: 1 if an operand is contiguous along K; VEC_A, VEC_B: elements of an access, 1 or more.
//   PROLOGUE_A, PROLOGUE_B: 1 if generated operations compute the operand.

#include "pdl.cuh"
#include "simt_tile_coord.cuh"
#include "simt_tile.cuh"
#include "epilogue_via_smem.cuh"

constexpr int BATCH = RANK - 2;

// Set the last two coordinates of one operand: its outer index and k, in the order of the tensor's axes.
template <bool K_LAST> __device__ __forceinline__ void set_matrix_coord(int (&at)[RANK], int outer, int k) {
    at[RANK - 2] = K_LAST ? outer : k;
    at[RANK - 1] = K_LAST ? k : outer;
}

template <class C, int V, bool K_MAJOR, bool PROLOGUE, bool K_LAST, class Storage, class Prologue>
__device__ __forceinline__ void load_global(
    const Storage* from, long long outer_stride, long long k_stride, const int (&batch)[RANK], int outer0,
    int outer_left, int k0, int k_left, Staged (&to)[C::COUNT][V], Prologue prologue
) {
    // The step from one vector of a thread to the next, along k or along the outer index.
    constexpr int VEC_STEP_K = K_MAJOR ? 0 : THREADS / C::VECS_OUTER, VEC_STEP_OUTER = K_MAJOR ? THREADS / C::VECS_K : 0;
    static_assert(THREADS % (K_MAJOR ? C::VECS_K : C::VECS_OUTER) == 0, "the vectors of one thread lie in one row or column");
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        const int chunk = i * THREADS + (int)threadIdx.x;
        #pragma unroll
        for (int e = 0; e < V; ++e) to[i][e] = (Staged)0;
        if (C::ALL % THREADS != 0 && chunk >= C::ALL) continue;
        const int k = C::k(chunk), outer = C::outer(chunk);
        if (k >= k_left || outer >= outer_left) continue;
        if constexpr (PROLOGUE) {
            int at[RANK];
            #pragma unroll
            for (int j = 0; j < BATCH; ++j) at[j] = batch[j];
            set_matrix_coord<K_LAST>(at, outer0 + outer, k0 + k);
            prologue(at, to[i]);
        } else {
            Storage loaded[V];
            load<V>(from + (Offset)(i * (VEC_STEP_OUTER * outer_stride + VEC_STEP_K * k_stride)), Packed(), loaded);
            #pragma unroll
            for (int e = 0; e < V; ++e) to[i][e] = widen<Staged>(loaded[e]);
        }
    }
}

__device__ __forceinline__ void batch_coord(long long batch, const Params& p, int (&at)[RANK]) {
    #pragma unroll
    for (int j = BATCH - 1; j >= 0; --j) {
        at[j] = (int)(batch % p.batch[j]);
        batch /= p.batch[j];
    }
    at[RANK - 2] = at[RANK - 1] = 0;
}

__device__ __forceinline__ void store_result(const Params& p, int (&at)[RANK], int row, int column, Accum (&acc)[VEC_WIDTH]) {
    at[RANK - 2] = SWAPPED ? column : row;
    at[RANK - 1] = SWAPPED ? row : column;
    epilogue(p, at, acc);
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) matmul(const __grid_constant__ Params p) {
    pdl_wait();
    constexpr int TILE_BYTES = 2 * TILE_K * (PITCH_A + PITCH_B) * (int)sizeof(Staged);
    constexpr int EPILOGUE_BYTES = THREADS_M * TILE_N * (int)sizeof(Accum);
    __shared__ __align__(16) unsigned char memory[TILE_BYTES > EPILOGUE_BYTES ? TILE_BYTES : EPILOGUE_BYTES];
    __shared__ int tile_coord[RANK + 2];  // batch, row and column of the tile, which only the epilogue needs again
    Staged(&tile_a)[2][TILE_K * PITCH_A] = *(Staged(*)[2][TILE_K * PITCH_A])memory;
    Staged(&tile_b)[2][TILE_K * PITCH_B] = *(Staged(*)[2][TILE_K * PITCH_B])(memory + sizeof(tile_a));

    // Rasterization: bands of RASTER_ROWS rows of tiles, column by column, so that concurrent CTAs share operands in L2.
    constexpr int RASTER_ROWS = 8;
    const long long tiles_m = (p.rows + TILE_M - 1) / TILE_M, tiles_n = (p.columns + TILE_N - 1) / TILE_N;
    const long long batch = blockIdx.x / (tiles_m * tiles_n), tile = blockIdx.x - batch * (tiles_m * tiles_n);
    const long long raster_band = tile / (RASTER_ROWS * tiles_n), tile_in_band = tile - raster_band * (RASTER_ROWS * tiles_n);
    const long long height = tiles_m - raster_band * RASTER_ROWS < RASTER_ROWS ? tiles_m - raster_band * RASTER_ROWS : RASTER_ROWS;
    const int row0 = (int)(raster_band * RASTER_ROWS + tile_in_band % height) * TILE_M, column0 = (int)(tile_in_band / height) * TILE_N;
    const long long first = (long long)blockIdx.y * p.depth_per_cta;
    const long long last = first + p.depth_per_cta < p.depth ? first + p.depth_per_cta : p.depth;

    int at[RANK], at_a[RANK], at_b[RANK];
    batch_coord(batch, p, at);
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int j = 0; j < RANK; ++j) tile_coord[j] = at[j];
        tile_coord[RANK] = row0;
        tile_coord[RANK + 1] = column0;
    }
    const StorageA* from_a = p.a + (row0 * p.a_outer + first * p.a_k);
    const StorageB* from_b = p.b + (column0 * p.b_outer + first * p.b_k);
    #pragma unroll
    for (int j = 0; j < RANK; ++j) {
        at_a[j] = j < BATCH ? at[j] / (int)p.a_shared[j] : 0;
        at_b[j] = j < BATCH ? at[j] / (int)p.b_shared[j] : 0;
        if (j < BATCH) {
            from_a += at_a[j] * p.a_batch[j];
            from_b += at_b[j] * p.b_batch[j];
        }
    }

    using ChunksA = Chunks<TILE_M, VEC_A, A_K_MAJOR>;
    using ChunksB = Chunks<TILE_N, VEC_B, B_K_MAJOR>;
    from_a += ChunksA::outer((int)threadIdx.x) * p.a_outer + ChunksA::k((int)threadIdx.x) * p.a_k;
    from_b += ChunksB::outer((int)threadIdx.x) * p.b_outer + ChunksB::k((int)threadIdx.x) * p.b_k;

    Accum accum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) accum[i][j] = (Accum)0;

    Staged next_a[ChunksA::COUNT][VEC_A], next_b[ChunksB::COUNT][VEC_B];
    const int rows_left = (int)(p.rows - row0 < TILE_M ? p.rows - row0 : TILE_M);
    const int columns_left = (int)(p.columns - column0 < TILE_N ? p.columns - column0 : TILE_N);
    const int tiles = (int)((last - first + TILE_K - 1) / TILE_K);
    auto load_tile = [&](int t) {
        const int k0 = (int)first + t * TILE_K, k_left = (int)last - k0;
        load_global<ChunksA, VEC_A, A_K_MAJOR, PROLOGUE_A, !SWAPPED>(
            from_a, p.a_outer, p.a_k, at_a, row0, rows_left, k0, k_left, next_a,
            [&](const int (&at)[RANK], Staged (&value)[VEC_A]) { prologue_a(p, at, value); });
        load_global<ChunksB, VEC_B, B_K_MAJOR, PROLOGUE_B, SWAPPED>(
            from_b, p.b_outer, p.b_k, at_b, column0, columns_left, k0, k_left, next_b,
            [&](const int (&at)[RANK], Staged (&value)[VEC_B]) { prologue_b(p, at, value); });
        from_a += TILE_K * p.a_k;
        from_b += TILE_K * p.b_k;
    };

    const ThreadCoord thread = thread_coord();
    load_tile(0);
    int stage = 0;
    for (int t = 0; t < tiles; ++t) {
        store_shared<ChunksA, VEC_A, PITCH_A, A_K_MAJOR>(tile_a[stage], next_a);
        store_shared<ChunksB, VEC_B, PITCH_B, B_K_MAJOR>(tile_b[stage], next_b);
        __syncthreads();
        if (t + 1 < tiles) load_tile(t + 1);
        fma_tile(tile_a[stage], tile_b[stage], thread, accum);
        stage ^= 1;
    }

    __syncthreads();
    const int first_row = tile_coord[RANK], first_column = tile_coord[RANK + 1];
    epilogue_via_smem((Accum*)memory, thread, accum, (int)p.rows - first_row, (int)p.columns - first_column,
          [&](int row, int column, Accum (&acc)[VEC_WIDTH]) {
        if constexpr (SPLIT) {  // matmul_splits adds the partial sums in order
            const long long split = blockIdx.y * p.batches + blockIdx.x / (tiles_m * tiles_n);
            const long long to = (split * p.rows + first_row + row) * p.columns + first_column + column;
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) p.partial[to + e] = acc[e];
        } else {
            int at[RANK];
            #pragma unroll
            for (int j = 0; j < BATCH; ++j) at[j] = tile_coord[j];
            store_result(p, at, first_row + row, first_column + column, acc);
        }
    });
}
