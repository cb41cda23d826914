// Implicit GEMM on CUDA cores for every type: fprop, dgrad and wgrad.
//   C[row, column] = sum over k of A[row, k] * B[k, column], one GEMM for each group and each residue of a strided dgrad.
// One operand is the im2col operand (x, or dy for dgrad), the other one is dense. An index stands for coordinates
// (implicit_coordinates.cuh) that add up: q[d] = outer.u[d] + k.u[d] is the coordinate along spatial axis d of the image, and
// elements outside the image are 0.
//
// Tile:     TILE_M x TILE_N for a CTA, TM x TN accumulators for a thread; a K tile has TILE_K elements.
// Pipeline: two shared-memory stages; global loads of the next K tile wait in registers during the multiply-adds.
// Offsets:  coordinates are decoded into shared tables, once for rows and columns, and once for each K tile.
// Epilogue: through shared memory (epilogue_via_smem.cuh), or partial sums for reduce_splits where SPLIT.
//
// Required constants (from the generator):
//   TILE_M, TILE_N, TILE_K, TM, TN, THREADS, PAD, CTAS_PER_SM: tile and launch bounds      VEC_A, VEC_B: elements of one access
//   A_IS_DENSE, A_K_MAJOR, B_K_MAJOR: roles and layouts of the operands                   VEC_WIDTH: elements of one store
//   ONE_TAP: every K tile lies in one filter tap      CHECKED: some taps reach outside the image      PROLOGUE: generated loads
//   DP4A: an element is four bytes of neighbouring channels      SPLIT: split-K in the grid's y    RESIDUES: GEMMs in its z
//   A_IS_SIGNED, B_IS_SIGNED: bytes are INT8, otherwise UINT8, if DP4A      K_KIND: axis of k: FILTER (tap, channel) or PIXEL
//   SPATIAL: spatial axes, 1 to 3

#include "pdl.cuh"
#include "implicit_coordinates.cuh"
#include "predicated_load.cuh"
#include "simt_tile_coord.cuh"
#include "epilogue_via_smem.cuh"

struct __align__(16) OuterIndex {
    Offset offset;   // this index's contribution to the offset, in elements
    int u[SPATIAL];  // this index's contribution to the spatial coordinates
    int nc[1];     // n for pixels, else the channel: a prologue needs it
};

struct __align__(16) KIndex {
    Offset im2col, dense;
    int u[SPATIAL];
    int nc[1];
};

// Advance the digits of a thread's k index by TILE_K, with carries. Where each K tile lies in one tap, advance to the same
// channel of the first K tile of the next tap.
template <int KIND> __device__ __forceinline__ void advance(Digits& at, const Params& p) {
    int carry = ONE_TAP;
    if (ONE_TAP) at.d[0] = (int)threadIdx.x;
    #pragma unroll
    for (int i = ONE_TAP ? 1 : 0; i < 3; ++i) {
        const int size = (int)(KIND == PIXEL ? p.pixel_digits[3 * residue() + i] : p.tap_digits[3 * residue() + i]);
        at.d[i] += (ONE_TAP ? 0 : (int)p.depth_step[4 * residue() + i]) + carry;
        carry = at.d[i] >= size;
        at.d[i] -= carry ? size : 0;
    }
    at.d[3] += (ONE_TAP ? 0 : (int)p.depth_step[4 * residue() + 3]) + carry;
}

// The address of a vector of V elements. The elements are 0 outside the image and outside the GEMM.
struct VecAddress {
    Distance at;   // bytes from the base pointer, which advances with the channels for all threads at once
    Offset start;  // the outer index's offset, where no other field of it is needed
    bool valid;
    int q[PROLOGUE ? SPATIAL : 1];
    int outer, k;  // the other coordinates, for a prologue
};

__device__ __forceinline__ VecAddress im2col_address(const Params& p, const OuterIndex& outer, const KIndex& k) {
    VecAddress result;
    result.valid = true;
    result.at = (Distance)(outer.offset + k.im2col) * (Distance)sizeof(Im2colElement);
    result.outer = outer.nc[0];
    result.k = k.nc[0];
    #pragma unroll
    for (int d = FIRST; d < 3; ++d) {
        const int at = outer.u[d - FIRST] + k.u[d - FIRST];
        if constexpr (CHECKED) result.valid = result.valid && (unsigned int)at < (unsigned int)p.image_size[d];
        if constexpr (PROLOGUE) result.q[d - FIRST] = at;
    }
    return result;
}

// The type of im2col elements in registers. The store to shared memory converts them.
template <bool A, class Yes, class No> struct Either { typedef Yes type; };
template <class Yes, class No> struct Either<false, Yes, No> { typedef No type; };
typedef typename Either<PROLOGUE, Staged, Im2colElement>::type Im2colStaged;

template <int V>
__device__ __forceinline__ void load_im2col(
    const Params& p, const char* from, int group, const VecAddress& address, int channel_offset, Im2colStaged (&to)[V]
) {
    if constexpr (PROLOGUE) {
        #pragma unroll
        for (int e = 0; e < V; ++e) to[e] = (Staged)0;
        if (!address.valid) return;
        int at[6] = {0, group, 0, 0, 0, 0};
        at[0] = K_KIND == PIXEL ? address.k : address.outer;
        at[2] = K_KIND == PIXEL ? address.outer : address.k + channel_offset;
        for (int d = FIRST; d < 3; ++d) at[3 + d] = address.q[d - FIRST];
        prologue(p, at, to);
    } else {
        load_if<V>(address.valid, (const Im2colElement*)from, to);
    }
}

template <int V>
__device__ __forceinline__ void load_dense(const char* from, bool valid, DenseElement (&to)[V]) {
    load_if<V>(valid, (const DenseElement*)from, to);
}

// accum + a * b, where DP4A multiplies four bytes of each operand and adds the four products.
__device__ __forceinline__ void dp4a(int& accum, int a, int b) {
#ifdef __CUDA_ARCH__
    if constexpr (A_IS_SIGNED && B_IS_SIGNED) asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(accum) : "r"(a), "r"(b));
    else if constexpr (A_IS_SIGNED) asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(accum) : "r"(a), "r"(b));
    else if constexpr (B_IS_SIGNED) asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(accum) : "r"(a), "r"(b));
    else asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(accum) : "r"(a), "r"(b));
#else
    for (int e = 0; e < 4; ++e) {
        const unsigned char one = (unsigned char)(a >> 8 * e), other = (unsigned char)(b >> 8 * e);
        multiply_add(accum, A_IS_SIGNED ? (int)(int8_t)one : (int)one, B_IS_SIGNED ? (int)(int8_t)other : (int)other);
    }
#endif
}

template <class Sum, class Factor> __device__ __forceinline__ void accumulate(Sum& accum, Factor a, Factor b) {
    if constexpr (DP4A) dp4a(accum, a, b);
    else multiply_add(accum, a, b);
}

static_assert(THREADS >= TILE_K, "one pass of the threads fills the table of a K tile");

// How the threads of a CTA divide one operand tile: vectors of V elements, contiguous along k or along the outer index.
template <int OUTER, int V, bool K_MAJOR> struct Chunks {
    static constexpr int VECS_K = K_MAJOR ? TILE_K / V : TILE_K, VECS_OUTER = K_MAJOR ? OUTER : OUTER / V;
    static constexpr int ALL = VECS_K * VECS_OUTER, COUNT = (ALL + THREADS - 1) / THREADS;
    // Consecutive threads read consecutive vectors. Where the threads cover whole runs, the vectors of one thread differ by
    // RUN_STEP in the strided index only.
    static constexpr int VECS_PER_RUN = K_MAJOR ? VECS_K : VECS_OUTER;
    static constexpr bool WHOLE_RUNS = THREADS % VECS_PER_RUN == 0;
    static constexpr int RUN_STEP = THREADS / VECS_PER_RUN;
    static __device__ __forceinline__ int contiguous_index(int i) {
        return (WHOLE_RUNS ? (int)threadIdx.x % VECS_PER_RUN : (i * THREADS + (int)threadIdx.x) % VECS_PER_RUN) * V;
    }
    static __device__ __forceinline__ int strided_index(int i) {
        return WHOLE_RUNS ? (int)threadIdx.x / VECS_PER_RUN + i * RUN_STEP : (i * THREADS + (int)threadIdx.x) / VECS_PER_RUN;
    }
    static __device__ __forceinline__ int k(int i) { return K_MAJOR ? contiguous_index(i) : strided_index(i); }
    static __device__ __forceinline__ int outer(int i) { return K_MAJOR ? strided_index(i) : contiguous_index(i); }
    static __device__ __forceinline__ bool exists(int i) {
        return ALL % THREADS == 0 || i * THREADS + (int)threadIdx.x < ALL;
    }
    // With one tap in a K tile, vectors of one outer index differ in the channel only, so one address serves all of them.
    static constexpr bool ONE_ADDRESS = ONE_TAP && !K_MAJOR && WHOLE_RUNS;
    static constexpr int ADDRESSES = ONE_ADDRESS ? 1 : COUNT;
};

using ChunksA = Chunks<TILE_M, VEC_A, A_K_MAJOR>;
using ChunksB = Chunks<TILE_N, VEC_B, B_K_MAJOR>;

struct IndexTables {
    OuterIndex im2col[A_IS_DENSE ? TILE_N : TILE_M];
    Offset dense[A_IS_DENSE ? TILE_M : TILE_N];
    KIndex depth[2][TILE_K];
    Digits row[TILE_M], column[TILE_N];  // coordinates of C
    Digits digits[TILE_K];         // of the k index that each of the first TILE_K threads decodes next
};

// Load a thread's vectors of one K tile. With one tap in a K tile the addresses stay valid until the next tap; only `base` and
// `channel_offset`, which belong to the tile's first channel, advance.
template <class C, int V, bool IS_DENSE, class T>
__device__ __forceinline__ void load_global(
    const Params& p, const char* base, int channel_offset, int group, const IndexTables& tables, int buffer, bool refreshes,
    int k_left, int outer_left, VecAddress (&addresses)[C::ADDRESSES], T (&to)[C::COUNT][V]
) {
    constexpr int SIZE = IS_DENSE ? (int)sizeof(DenseElement) : (int)sizeof(Im2colElement);
    const Distance nc_bytes = (Distance)(IS_DENSE ? p.dense_nc : p.im2col_c) * (Distance)SIZE;
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        if (!C::exists(i)) continue;
        const int k = C::k(i), outer = C::outer(i);
        VecAddress& address = addresses[C::ONE_ADDRESS ? 0 : i];
        if ((!C::ONE_ADDRESS || i == 0) && (!ONE_TAP || refreshes)) {
            const KIndex& depth = tables.depth[buffer][k];
            if constexpr (IS_DENSE) address.at = (Distance)(address.start + depth.dense) * (Distance)SIZE;
            else if constexpr (!CHECKED && !PROLOGUE) address.at = (Distance)(address.start + depth.im2col) * (Distance)SIZE;
            else address = im2col_address(p, tables.im2col[outer], depth);
            const bool inside = (ONE_TAP || k < k_left) && outer < outer_left;
            if constexpr (IS_DENSE || (!CHECKED && !PROLOGUE)) address.valid = inside;
            else address.valid = address.valid && inside;
        }
        const int vec_offset = C::ONE_ADDRESS ? i * C::RUN_STEP : 0;
        const char* const source = base + address.at + (unsigned long long)nc_bytes * (unsigned int)vec_offset;
        if constexpr (IS_DENSE) load_dense<V>(source, address.valid, to[i]);
        else load_im2col<V>(p, source, group, address, channel_offset + vec_offset, to[i]);
    }
}

template <class C, bool IS_DENSE>
__device__ __forceinline__ void init_addresses(const IndexTables& tables, VecAddress (&addresses)[C::ADDRESSES]) {
    #pragma unroll
    for (int i = 0; i < C::ADDRESSES; ++i) {
        const int outer = C::exists(i) ? C::outer(i) : 0;
        if constexpr (IS_DENSE) addresses[i].start = tables.dense[outer];
        else addresses[i].start = tables.im2col[outer].offset;
    }
}

template <class C, int V, int PITCH, bool K_MAJOR, class T>
__device__ __forceinline__ void store_shared(Staged* tile, const T (&from)[C::COUNT][V]) {
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        if (!C::exists(i)) continue;
        const int k = C::k(i), outer = C::outer(i);
        #pragma unroll
        for (int e = 0; e < V; ++e) tile[(K_MAJOR ? k + e : k) * PITCH + (K_MAJOR ? outer : outer + e)] = widen<Staged>(from[i][e]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) implicit_gemm(const __grid_constant__ Params p) {
    pdl_wait();
    constexpr int TILE_BYTES = 2 * TILE_K * (PITCH_A + PITCH_B) * (int)sizeof(Staged);
    constexpr int EPILOGUE_BYTES = THREADS_M * TILE_N * (int)sizeof(Accum);
    __shared__ __align__(16) unsigned char memory[TILE_BYTES > EPILOGUE_BYTES ? TILE_BYTES : EPILOGUE_BYTES];
    __shared__ IndexTables tables;
    Staged(&tile_a)[2][TILE_K * PITCH_A] = *(Staged(*)[2][TILE_K * PITCH_A])memory;
    Staged(&tile_b)[2][TILE_K * PITCH_B] = *(Staged(*)[2][TILE_K * PITCH_B])(memory + sizeof(tile_a));

    // Consecutive CTAs compute tiles of the same rows, so that they share these rows in the L2 cache.
    const long long rows = p.rows[residue()], columns = p.columns[residue()];
    const long long tiles_m = (rows + TILE_M - 1) / TILE_M, tiles_n = (columns + TILE_N - 1) / TILE_N;
    const long long cta = blockIdx.x;
    if (RESIDUES > 1 && cta >= p.groups * tiles_m * tiles_n) return;
    const int group = (int)(cta / (tiles_m * tiles_n));
    const long long tile = cta - group * (tiles_m * tiles_n);
    const long long row0 = tile / tiles_n * TILE_M, column0 = tile % tiles_n * TILE_N;
    const long long depth = p.depth[residue()], split_depth = p.depth_per_cta[residue()];
    const long long first = (long long)blockIdx.y * split_depth, last = first + split_depth < depth ? first + split_depth : depth;

    constexpr int A_KIND = A_IS_DENSE ? CHANNEL : PIXEL;
    constexpr int B_KIND = A_IS_DENSE ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;
    constexpr int OUTER_KIND = A_IS_DENSE ? B_KIND : A_KIND;  // kind of the im2col operand's outer index
    const long long im2col0 = A_IS_DENSE ? column0 : row0, dense0 = A_IS_DENSE ? row0 : column0;
    for (int i = threadIdx.x; i < (A_IS_DENSE ? TILE_N : TILE_M); i += THREADS) {
        const Digits digits = digits_of<OUTER_KIND>(im2col0 + i, p);
        OuterIndex result;
        result.offset = im2col_offset<OUTER_KIND>(digits, p, result.u);
        result.nc[0] = nc_of<OUTER_KIND>(digits);
        tables.im2col[i] = result;
    }
    for (int i = threadIdx.x; i < TILE_M; i += THREADS) tables.row[i] = output_digits<A_KIND>(row0 + i, p);
    for (int i = threadIdx.x; i < TILE_N; i += THREADS) tables.column[i] = output_digits<B_KIND>(column0 + i, p);
    for (int i = threadIdx.x; i < (A_IS_DENSE ? TILE_M : TILE_N); i += THREADS)
        tables.dense[i] = (Offset)((dense0 + i) * p.dense_channel);
    const Im2colElement* im2col = (const Im2colElement*)p.im2col + group * p.im2col_g;
    const DenseElement* dense = (const DenseElement*)p.dense + group * p.dense_g + p.dense_start[residue()];

    if (threadIdx.x < TILE_K) tables.digits[threadIdx.x] = digits_of<K_KIND>(first + threadIdx.x, p);
    auto fill_k_indices = [&](int buffer) {  // the next TILE_K k indices, one for each of the first threads
        if (threadIdx.x < TILE_K) {
            Digits depth = tables.digits[threadIdx.x];
            KIndex result;
            result.im2col = im2col_offset<K_KIND>(depth, p, result.u);
            result.dense = dense_offset<K_KIND>(depth, p);
            result.nc[0] = nc_of<K_KIND>(depth);
            tables.depth[buffer][threadIdx.x] = result;
            advance<K_KIND>(depth, p);
            tables.digits[threadIdx.x] = depth;
        }
    };

    Accum accum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) accum[i][j] = (Accum)0;

    typename Either<A_IS_DENSE, DenseElement, Im2colStaged>::type next_a[ChunksA::COUNT][VEC_A];
    typename Either<A_IS_DENSE, Im2colStaged, DenseElement>::type next_b[ChunksB::COUNT][VEC_B];
    const int rows_left = (int)(rows - row0 < TILE_M ? rows - row0 : TILE_M);
    const int columns_left = (int)(columns - column0 < TILE_N ? columns - column0 : TILE_N);
    const int tiles = (int)((last - first + TILE_K - 1) / TILE_K), tail = (int)(last - first - (long long)(tiles - 1) * TILE_K);
    // The table is filled for every K tile, or for the first K tile of every tap.
    const int tiles_per_tap = ONE_TAP ? (int)p.tap_digits[3 * residue()] / TILE_K : 1;
    int tiles_until_refresh = 0, buffer = 0;
    const int first_tile_of_tap = ONE_TAP ? (int)((first / TILE_K) % tiles_per_tap) : 0;
    VecAddress addresses_a[ChunksA::ADDRESSES], addresses_b[ChunksB::ADDRESSES];
    const char *im2col_base = (const char*)im2col, *dense_base = (const char*)dense;
    int channel_offset = 0;
    auto load_tile = [&](int i) {
        const int left = i + 1 < tiles ? TILE_K : tail;
        const bool refreshes = tiles_until_refresh == 0;
        if (refreshes) {
            im2col_base = (const char*)im2col;
            dense_base = (const char*)dense;
            channel_offset = 0;
        } else {
            im2col_base += TILE_K * p.im2col_c * (int)sizeof(Im2colElement);
            dense_base += TILE_K * p.dense_nc * (int)sizeof(DenseElement);
            channel_offset += TILE_K;
        }
        load_global<ChunksA, VEC_A, A_IS_DENSE>(
            p, A_IS_DENSE ? dense_base : im2col_base, channel_offset, group, tables, buffer, refreshes, left, rows_left, addresses_a, next_a);
        load_global<ChunksB, VEC_B, !A_IS_DENSE>(
            p, A_IS_DENSE ? im2col_base : dense_base, channel_offset, group, tables, buffer, refreshes, left, columns_left, addresses_b, next_b);
        if (refreshes) {
            buffer ^= 1;
            tiles_until_refresh = tiles_per_tap - (i == 0 ? first_tile_of_tap : 0);
        }
        --tiles_until_refresh;
        return refreshes;
    };

    const ThreadCoord thread = thread_coord();
    fill_k_indices(0);
    __syncthreads();
    init_addresses<ChunksA, A_IS_DENSE>(tables, addresses_a);
    init_addresses<ChunksB, !A_IS_DENSE>(tables, addresses_b);
    if (tiles > 0) {  // some residues have no taps and so no K tiles
        load_tile(0);
        fill_k_indices(1);
    }
    int stage = 0;
    for (int t = 0; t < tiles; ++t) {
        store_shared<ChunksA, VEC_A, PITCH_A, A_K_MAJOR>(tile_a[stage], next_a);
        store_shared<ChunksB, VEC_B, PITCH_B, B_K_MAJOR>(tile_b[stage], next_b);
        __syncthreads();
        const bool is_filled = t + 1 < tiles && load_tile(t + 1);
        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            Staged a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = tile_a[stage][k * PITCH_A + row_of(thread, i)];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = tile_b[stage][k * PITCH_B + column_of(thread, j)];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) accumulate(accum[i][j], a[i], b[j]);
        }
        // All threads read the other table before the barrier above.
        if (is_filled) fill_k_indices(buffer);
        stage ^= 1;
    }

    __syncthreads();
    const auto emit = [&](int row, int column, const Accum (&acc)[VEC_WIDTH]) {
        if constexpr (SPLIT) {  // reduce_splits adds the partial sums in order
            const long long at = p.partial_start[residue()] + blockIdx.y * p.results[residue()] +
                                 (group * rows + row0 + row) * columns + column0 + column;
            Vec<Accum, VEC_WIDTH> pack;
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) pack[e] = acc[e];
            store_vec<VEC_WIDTH>(p.partial + at, pack);
        } else {
            int at[6] = {0, 0, 0, 0, 0, 0};
            at[K_KIND == PIXEL ? 0 : 1] = group;
            output_coordinates<A_KIND>(p, tables.row[row], at);
            output_coordinates<B_KIND>(p, tables.column[column], at);
            epilogue(p, at, acc);
        }
    };
    epilogue_via_smem((Accum*)memory, thread, accum, rows_left, columns_left, emit);
}
