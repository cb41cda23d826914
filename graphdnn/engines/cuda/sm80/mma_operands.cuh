// Copies of operand tiles from global to shared memory. cp.async copies vectors of 16, 8 or 4 bytes. Operands whose order in
// memory differs from the tile's, or whose type differs, pass through registers element by element.

#include "direct_copy.cuh"
#include "predicated_load.cuh"
#include "implicit_coordinates.cuh"
#include "mma.cuh"
#include "mma_tile.cuh"

// The contribution of an outer index (a row of A or a column of B) to an address of the im2col operand, and the contribution
// of a k index to addresses of both operands.
struct __align__(16) OuterIndex {
    Offset offset;
    int u[SPATIAL];
};
struct __align__(16) KIndex {
    Offset im2col, dense;
    int u[SPATIAL];
};

// How the threads of a CTA divide one operand tile: each thread copies vectors of V contiguous elements. Consecutive threads
// copy consecutive vectors of a run; the vectors of one thread differ by RUN_STEP in the strided index only.
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
    static constexpr int OUTERS = K_MAJOR ? COUNT : 1;      // outer indices of one thread
    static constexpr bool OUTER_IN_REGISTERS = OUTERS <= 4;
    static __device__ __forceinline__ int contiguous_index() { return (int)threadIdx.x % VECS_PER_RUN * V; }
    static __device__ __forceinline__ int strided_index(int i) { return (int)threadIdx.x / VECS_PER_RUN + i * RUN_STEP; }
    static __device__ __forceinline__ int k(int i) { return K_MAJOR ? contiguous_index() : strided_index(i); }
    static __device__ __forceinline__ int outer(int i) { return K_MAJOR ? strided_index(i) : contiguous_index(); }
    static __device__ __forceinline__ bool exists(int i) {
        return ALL % THREADS == 0 || i * THREADS + (int)threadIdx.x < ALL;
    }
    struct CopyIterator {
        const Stored* from;
        int left;            // how many of the vectors, from the first on, have an outer index inside the operand
        Offset start, stride;  // dense operand: the first vector's offset, and the offset from vector to vector
        OuterIndex outer[IS_DENSE || !OUTER_IN_REGISTERS ? 1 : OUTERS];
        KIndex depth;        // of the current K tile, where all vectors of the thread share one k index
    };
    struct StagedRegisters {
        Stored element[BY_CP_ASYNC ? 1 : COUNT][V];
    };
};

using SideA = Side<StoredA, A, TILE_M, VEC_A, A_K_MAJOR, A_MN_MAJOR, A_IS_DENSE>;
using SideB = Side<StoredB, B, TILE_N, VEC_B, B_K_MAJOR, B_MN_MAJOR, !A_IS_DENSE>;

// Where both operands are K-major, the table holds one entry for each vector instead of one for each k index.
constexpr int K_PER_ENTRY = A_K_MAJOR && B_K_MAJOR ? (VEC_A < VEC_B ? VEC_A : VEC_B) : 1;
constexpr int TILE_ENTRIES = TILE_K / K_PER_ENTRY;  // of one K tile
static_assert(STAGES <= BATCH, "the prologue fills two batches of the table");

struct IndexTables {
    OuterIndex im2col[A_IS_DENSE ? TILE_N : TILE_M];
    Digits row[TILE_M], column[TILE_N];  // coordinates of C
};
struct KIndexTable {
    KIndex at[2 * BATCH * TILE_ENTRIES];
};

// Fill the table for BATCHES batches of BATCH K tiles each. The table holds two batches in turn. The last threads work first,
// because the first ones have more to copy. A persistent CTA starts again at K tile 0 after K tile `tiles` - 1.
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

// Start the loads of one of LOAD_SLICES slices of a K tile. Vectors that pass through registers stay in `staged_registers`.
// The code has no branches, so that it can be scheduled between mma instructions; loads past the last K tile are masked.
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
            cp_async_zfill<S::V * (int)sizeof(Stored)>(tile + S::Tile::at(k, S::outer(i)), from, valid);
        } else {
            load_if<S::V>(valid, from, staged_registers.element[i]);
        }
    }
}

template <class T, class Stored> __device__ __forceinline__ T staged(Stored x) {
    if constexpr (same<T, Stored>) return x;
    else return narrow<T>(widen<float>(x));
}

// Store the staged registers in the tile.
template <class S> __device__ __forceinline__ void store_shared(unsigned char* tile, const typename S::StagedRegisters& staged_registers) {
    typedef typename S::T T;
    if constexpr (!S::BY_CP_ASYNC) {
        // The offsets are computed again for each tile: keeping one for each element would spill registers.
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
