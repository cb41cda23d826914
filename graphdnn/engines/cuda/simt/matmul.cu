// Stacks of matrix products: C[row, column] = sum over k of A[row, k] * B[k, column], one for each batch.
//
// Rows are the axis M and columns N, or the other way round (SWAPPED), so that stores run along the columns.
// A batch axis of c has BATCH axes; consecutive batches may share a matrix of a or b.

constexpr int BATCH = RANK - 2;

// Coordinates of one operand: batches, then its outer index and k in the order of the tensor's axes.
template <bool K_LAST> __device__ __forceinline__ void place_in(int (&at)[RANK], int outer, int k) {
    at[RANK - 2] = K_LAST ? outer : k;
    at[RANK - 1] = K_LAST ? k : outer;
}

template <class C, int V, bool ALONG_K, bool PROLOGUE, bool K_LAST, class Storage, class Prologue>
__device__ __forceinline__ void fetch(
    const Storage* from, long long outer_stride, long long k_stride, const int (&batch)[RANK], int outer0,
    int outer_left, int k0, int k_left, Staged (&to)[C::COUNT][V], Prologue prologue
) {
    // From one chunk to the next: the same place along one of the two.
    constexpr int STEP_K = ALONG_K ? 0 : THREADS / C::PER_OUTER, STEP_OUTER = ALONG_K ? THREADS / C::PER_K : 0;
    static_assert(THREADS % (ALONG_K ? C::PER_K : C::PER_OUTER) == 0, "chunks of one thread are in one row or column");
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
            place_in<K_LAST>(at, outer0 + outer, k0 + k);
            prologue(at, to[i]);
        } else {
            Storage loaded[V];
            load<V>(from + (Offset)(i * (STEP_OUTER * outer_stride + STEP_K * k_stride)), Packed(), loaded);
            #pragma unroll
            for (int e = 0; e < V; ++e) to[i][e] = widen<Staged>(loaded[e]);
        }
    }
}

__device__ __forceinline__ void batch_digits(long long batch, const Params& p, int (&at)[RANK]) {
    #pragma unroll
    for (int j = BATCH - 1; j >= 0; --j) {
        at[j] = (int)(batch % p.batch[j]);
        batch /= p.batch[j];
    }
    at[RANK - 2] = at[RANK - 1] = 0;
}

__device__ __forceinline__ void finish(const Params& p, int (&at)[RANK], int row, int column, Accum (&acc)[WIDTH]) {
    at[RANK - 2] = SWAPPED ? column : row;
    at[RANK - 1] = SWAPPED ? row : column;
    epilogue(p, at, acc);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) matmul(const __grid_constant__ Params p) {
    pdl_wait();
    constexpr int TILE_BYTES = 2 * BK * (PITCH_A + PITCH_B) * (int)sizeof(Staged);
    constexpr int SLAB_BYTES = THREADS_M * BN * (int)sizeof(Accum);
    __shared__ __align__(16) unsigned char memory[TILE_BYTES > SLAB_BYTES ? TILE_BYTES : SLAB_BYTES];
    __shared__ int result[RANK + 2];  // batch, row and column of the tile: needed again at the end only
    Staged(&tile_a)[2][BK * PITCH_A] = *(Staged(*)[2][BK * PITCH_A])memory;
    Staged(&tile_b)[2][BK * PITCH_B] = *(Staged(*)[2][BK * PITCH_B])(memory + sizeof(tile_a));

    // Bands of BAND rows of tiles, walked column by column: blocks at work together share both operands in the cache.
    constexpr int BAND = 8;
    const long long tiles_m = (p.rows + BM - 1) / BM, tiles_n = (p.columns + BN - 1) / BN;
    const long long batch = blockIdx.x / (tiles_m * tiles_n), tile = blockIdx.x - batch * (tiles_m * tiles_n);
    const long long band = tile / (BAND * tiles_n), in_band = tile - band * (BAND * tiles_n);
    const long long height = tiles_m - band * BAND < BAND ? tiles_m - band * BAND : BAND;
    const int row0 = (int)(band * BAND + in_band % height) * BM, column0 = (int)(in_band / height) * BN;
    const long long first = (long long)blockIdx.y * p.depth_per_block;
    const long long last = first + p.depth_per_block < p.depth ? first + p.depth_per_block : p.depth;

    int at[RANK], at_a[RANK], at_b[RANK];
    batch_digits(batch, p, at);
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int j = 0; j < RANK; ++j) result[j] = at[j];
        result[RANK] = row0;
        result[RANK + 1] = column0;
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

    using ChunksA = Chunks<BM, VECTOR_A, ALONG_K_A>;
    using ChunksB = Chunks<BN, VECTOR_B, ALONG_K_B>;
    from_a += ChunksA::outer((int)threadIdx.x) * p.a_outer + ChunksA::k((int)threadIdx.x) * p.a_k;
    from_b += ChunksB::outer((int)threadIdx.x) * p.b_outer + ChunksB::k((int)threadIdx.x) * p.b_k;

    Accum sum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = (Accum)0;

    Staged next_a[ChunksA::COUNT][VECTOR_A], next_b[ChunksB::COUNT][VECTOR_B];
    const int rows_left = (int)(p.rows - row0 < BM ? p.rows - row0 : BM);
    const int columns_left = (int)(p.columns - column0 < BN ? p.columns - column0 : BN);
    const int tiles = (int)((last - first + BK - 1) / BK);
    auto fetch_tile = [&](int t) {
        const int k0 = (int)first + t * BK, k_left = (int)last - k0;
        fetch<ChunksA, VECTOR_A, ALONG_K_A, PROLOGUE_A, !SWAPPED>(
            from_a, p.a_outer, p.a_k, at_a, row0, rows_left, k0, k_left, next_a,
            [&](const int (&at)[RANK], Staged (&value)[VECTOR_A]) { prologue_a(p, at, value); });
        fetch<ChunksB, VECTOR_B, ALONG_K_B, PROLOGUE_B, SWAPPED>(
            from_b, p.b_outer, p.b_k, at_b, column0, columns_left, k0, k_left, next_b,
            [&](const int (&at)[RANK], Staged (&value)[VECTOR_B]) { prologue_b(p, at, value); });
        from_a += BK * p.a_k;
        from_b += BK * p.b_k;
    };

    const Place mine = place();
    fetch_tile(0);
    int stage = 0;
    for (int t = 0; t < tiles; ++t) {
        put<ChunksA, VECTOR_A, PITCH_A, ALONG_K_A>(tile_a[stage], next_a);
        put<ChunksB, VECTOR_B, PITCH_B, ALONG_K_B>(tile_b[stage], next_b);
        __syncthreads();
        if (t + 1 < tiles) fetch_tile(t + 1);
        multiply(tile_a[stage], tile_b[stage], mine, sum);
        stage ^= 1;
    }

    __syncthreads();
    const int first_row = result[RANK], first_column = result[RANK + 1];
    leave((Accum*)memory, mine, sum, (int)p.rows - first_row, (int)p.columns - first_column,
          [&](int row, int column, Accum (&acc)[WIDTH]) {
        if constexpr (SPLIT) {  // partial sums, added in order by a kernel of their own
            const long long part = blockIdx.y * p.batches + blockIdx.x / (tiles_m * tiles_n);
            const long long to = (part * p.rows + first_row + row) * p.columns + first_column + column;
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) p.partial[to + e] = acc[e];
        } else {
            int at[RANK];
            #pragma unroll
            for (int j = 0; j < BATCH; ++j) at[j] = result[j];
            finish(p, at, first_row + row, first_column + column, acc);
        }
    });
}
