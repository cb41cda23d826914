// Operands on their way into shared memory: 16 (8, 4) bytes at once behind the threads' back, or element by element through
// registers where memory has them in another order or type.

// The part of an outer index, and of an index of the sum, in the gathered operand; the latter's in the plain one too.
struct __align__(16) OuterIndex {
    Offset offset;
    int u[SPATIAL];
};
struct __align__(16) KIndex {
    Offset im2col, dense;
    int u[SPATIAL];
};

// One operand's chunks: V neighbours in memory, along the sum or along the outer index. Threads go along memory first; a
// thread's chunks then differ in the other index alone, by a constant.
template <class Stored_, class T_, int OUTER, int V_, bool ALONG_K_, bool MN_MAJOR, bool IS_DENSE_> struct Side {
    typedef Stored_ Stored;
    typedef T_ T;
    typedef TileOf<T, OUTER, MN_MAJOR> Tile;
    static constexpr int V = V_;
    static constexpr bool K_MAJOR = ALONG_K_, IS_DENSE = IS_DENSE_;
    static constexpr bool BY_CP_ASYNC = same<Stored, T> && V * (int)sizeof(T) >= 4 && K_MAJOR != MN_MAJOR;
    static constexpr int ALL = TILE_K * OUTER / V, COUNT = (ALL + THREADS - 1) / THREADS;
    static constexpr int VECS_PER_RUN = K_MAJOR ? TILE_K / V : OUTER / V, RUN_STEP = THREADS / VECS_PER_RUN;
    static_assert(THREADS % VECS_PER_RUN == 0, "threads cover whole runs");
    static constexpr int OUTERS = K_MAJOR ? COUNT : 1;      // outer indices of a thread
    static constexpr bool OUTER_IN_REGISTERS = OUTERS <= 4;            // in registers
    static __device__ __forceinline__ int contiguous_index() { return (int)threadIdx.x % VECS_PER_RUN * V; }
    static __device__ __forceinline__ int strided_index(int i) { return (int)threadIdx.x / VECS_PER_RUN + i * RUN_STEP; }
    static __device__ __forceinline__ int k(int i) { return K_MAJOR ? contiguous_index() : strided_index(i); }
    static __device__ __forceinline__ int outer(int i) { return K_MAJOR ? strided_index(i) : contiguous_index(); }
    static __device__ __forceinline__ bool exists(int i) {
        return ALL % THREADS == 0 || i * THREADS + (int)threadIdx.x < ALL;
    }
    struct CopyIterator {
        const Stored* from;
        int left;            // of the outer indices of the chunks, those that exist: the first ones
        Offset start, stride;  // of the plain operand: the first chunk's part, and from chunk to chunk
        OuterIndex outer[IS_DENSE || !OUTER_IN_REGISTERS ? 1 : OUTERS];
        KIndex depth;         // of the tile on its way, where it is the same for all chunks
    };
    struct StagedRegisters {
        Stored element[BY_CP_ASYNC ? 1 : COUNT][V];
    };
};

using SideA = Side<StoredA, A, TILE_M, VEC_A, A_K_MAJOR, A_MN_MAJOR, A_IS_DENSE>;
using SideB = Side<StoredB, B, TILE_N, VEC_B, B_K_MAJOR, B_MN_MAJOR, !A_IS_DENSE>;

// Where both operands' chunks lie along the sum, only their first indices are described.
constexpr int K_PER_ENTRY = A_K_MAJOR && B_K_MAJOR ? (VEC_A < VEC_B ? VEC_A : VEC_B) : 1;
constexpr int TILE_ENTRIES = TILE_K / K_PER_ENTRY;  // of a tile
static_assert(STAGES <= BATCH, "two batches are k_indices before the first product");

struct IndexTables {
    OuterIndex im2col[A_IS_DENSE ? TILE_N : TILE_M];
    Digits row[TILE_M], column[TILE_N];  // where the results belong
};
struct KIndexTable {
    KIndex at[2 * BATCH * TILE_ENTRIES];
};

// The indices of BATCHES times BATCH tiles of the sum, by the last threads first: every second batch lies in the same place.
// The sum has `tiles`; behind the last one comes the first.
template <int BATCHES>
__device__ __forceinline__ void fill_k_indices(const Params& p, KIndexTable& k_indices, int batch, long long first, int tiles) {
    #pragma unroll 1
    for (int i = THREADS - 1 - (int)threadIdx.x; i < BATCHES * BATCH * TILE_ENTRIES; i += THREADS) {
        const int tile = batch * BATCH + i / TILE_ENTRIES;
        const Digits digits =
            digits_of<K_KIND>(first + (long long)(PERSISTENT ? tile % tiles : tile) * TILE_K + i % TILE_ENTRIES * K_PER_ENTRY, p);
        KIndex result;
        result.im2col = im2col_offset<K_KIND>(digits, p, result.u);
        result.dense = dense_offset<K_KIND>(digits, p);
        k_indices.at[batch % 2 * BATCH * TILE_ENTRIES + i] = result;
    }
}

template <class S> __device__ __forceinline__ void init_copy(
    const Params& p, typename S::CopyIterator& copy, const typename S::Stored* from, const IndexTables& tables, long long first, int left
) {
    copy.from = from;
    copy.left = S::K_MAJOR ? (left - S::outer(0) + S::RUN_STEP - 1) / S::RUN_STEP : S::outer(0) < left;
    if constexpr (S::IS_DENSE) {
        copy.start = (Offset)((first + S::outer(0)) * p.dense_channel);
        copy.stride = S::K_MAJOR ? (Offset)(S::RUN_STEP * p.dense_channel) : (Offset)0;
    } else if constexpr (S::OUTER_IN_REGISTERS) {
        #pragma unroll
        for (int i = 0; i < S::OUTERS; ++i) copy.outer[i] = tables.im2col[S::exists(i) ? S::outer(i) : 0];
    }
}

// Starts a part of one tile on its way, of LOAD_SLICES; what goes through registers waits there. There are no branches, so that
// it is done between products; behind the last tile nothing is read.
template <class S, int LOAD_SLICES> __device__ __forceinline__ void load_global(
    const Params& p, typename S::CopyIterator& copy, const IndexTables& tables, const KIndex* k_indices, int k_left, int load_slice,
    unsigned char* tile, typename S::StagedRegisters& staged_registers
) {
    typedef typename S::Stored Stored;
    if (S::K_MAJOR && load_slice == 0) copy.depth = k_indices[S::contiguous_index() / K_PER_ENTRY];
    #pragma unroll
    for (int i = 0; i < S::COUNT; ++i) {
        if (i * LOAD_SLICES / S::COUNT != load_slice || !S::exists(i)) continue;
        const int k = S::k(i);
        const KIndex depth = S::K_MAJOR ? copy.depth : k_indices[k / K_PER_ENTRY];
        bool valid = k < k_left && (S::K_MAJOR ? i : 0) < copy.left;
        Offset offset;
        if constexpr (S::IS_DENSE) {
            offset = copy.start + (Offset)i * copy.stride + depth.dense;
        } else {
            const OuterIndex outer = S::OUTER_IN_REGISTERS ? copy.outer[S::OUTER_IN_REGISTERS && S::K_MAJOR ? i : 0] : tables.im2col[S::outer(i)];
            offset = outer.offset + depth.im2col;
            if constexpr (CHECKED) {
                #pragma unroll
                for (int d = 0; d < SPATIAL; ++d)
                    valid = valid & ((unsigned int)(outer.u[d] + depth.u[d]) < (unsigned int)p.image_size[FIRST + d]);
            }
        }
        const Stored* const from = copy.from + offset;
        if constexpr (S::BY_CP_ASYNC) {
            copy_async<S::V * (int)sizeof(Stored)>(tile + S::Tile::at(k, S::outer(i)), from, valid);
        } else {
            load_if<S::V>(valid, from, staged_registers.element[i]);
        }
    }
}

template <class T, class Stored> __device__ __forceinline__ T staged(Stored x) {
    if constexpr (same<T, Stored>) return x;
    else return narrow<T>(widen<float>(x));
}

// What waits in registers enters the tile.
template <class S> __device__ __forceinline__ void store_shared(unsigned char* tile, const typename S::StagedRegisters& staged_registers) {
    typedef typename S::T T;
    if constexpr (!S::BY_CP_ASYNC) {
        // Known anew for each tile: as many places as elements would not fit the registers.
        int k0 = S::k(0), outer0 = S::outer(0);
#ifdef __CUDA_ARCH__
        asm volatile("" : "+r"(k0), "+r"(outer0));
#endif
        #pragma unroll
        for (int i = 0; i < S::COUNT; ++i) {
            if (!S::exists(i)) continue;
            const int k = k0 + (S::K_MAJOR ? 0 : i * S::RUN_STEP), outer = outer0 + (S::K_MAJOR ? i * S::RUN_STEP : 0);
            #pragma unroll
            for (int e = 0; e < S::V; ++e)
                *(T*)(tile + S::Tile::at(k + (S::K_MAJOR ? e : 0), outer + (S::K_MAJOR ? 0 : e))) =
                    staged<T>(staged_registers.element[i][e]);
        }
    }
}
