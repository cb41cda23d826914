// Operands on their way into shared memory: 16 (8, 4) bytes at once behind the threads' back, or element by element through
// registers where memory has them in another order or type.

// The part of an outer index, and of an index of the sum, in the gathered operand; the latter's in the plain one too.
struct __align__(16) Outer {
    Offset offset;
    int u[SPATIAL];
};
struct __align__(16) Depth {
    Offset gathered, plain;
    int u[SPATIAL];
};

// One operand's chunks: V neighbours in memory, along the sum or along the outer index. Threads go along memory first; a
// thread's chunks then differ in the other index alone, by a constant.
template <class Stored_, class T_, int OUTER, int V_, bool ALONG_K_, bool IS_TURNED, bool IS_PLAIN_> struct Side {
    typedef Stored_ Stored;
    typedef T_ T;
    typedef TileOf<T, OUTER, IS_TURNED> Tile;
    static constexpr int V = V_;
    static constexpr bool ALONG_K = ALONG_K_, IS_PLAIN = IS_PLAIN_;
    static constexpr bool IS_COPIED = same<Stored, T> && V * (int)sizeof(T) >= 4 && ALONG_K != IS_TURNED;
    static constexpr int ALL = BK * OUTER / V, COUNT = (ALL + THREADS - 1) / THREADS;
    static constexpr int RUN = ALONG_K ? BK / V : OUTER / V, STEP = THREADS / RUN;
    static_assert(THREADS % RUN == 0, "threads cover whole runs");
    static constexpr int OUTERS = ALONG_K ? COUNT : 1;      // outer indices of a thread
    static constexpr bool IS_HELD = OUTERS <= 4;            // in registers
    static __device__ __forceinline__ int along() { return (int)threadIdx.x % RUN * V; }
    static __device__ __forceinline__ int across(int i) { return (int)threadIdx.x / RUN + i * STEP; }
    static __device__ __forceinline__ int k(int i) { return ALONG_K ? along() : across(i); }
    static __device__ __forceinline__ int outer(int i) { return ALONG_K ? across(i) : along(); }
    static __device__ __forceinline__ bool exists(int i) {
        return ALL % THREADS == 0 || i * THREADS + (int)threadIdx.x < ALL;
    }
    struct Held {
        const Stored* from;
        int left;            // of the outer indices of the chunks, those that exist: the first ones
        Offset start, pace;  // of the plain operand: the first chunk's part, and from chunk to chunk
        Outer outer[IS_PLAIN || !IS_HELD ? 1 : OUTERS];
        Depth depth;         // of the tile on its way, where it is the same for all chunks
    };
    struct Waiting {
        Stored element[IS_COPIED ? 1 : COUNT][V];
    };
};

using SideA = Side<StoredA, A, BM, VECTOR_A, ALONG_K_A, TURNED_A, A_IS_PLAIN>;
using SideB = Side<StoredB, B, BN, VECTOR_B, ALONG_K_B, TURNED_B, !A_IS_PLAIN>;

// Where both operands' chunks lie along the sum, only their first indices are described.
constexpr int DESCRIBED = ALONG_K_A && ALONG_K_B ? (VECTOR_A < VECTOR_B ? VECTOR_A : VECTOR_B) : 1;
constexpr int ENTRIES = BK / DESCRIBED;  // of a tile
static_assert(STAGES <= BATCH, "two batches are described before the first product");

struct Tables {
    Outer gathered[A_IS_PLAIN ? BN : BM];
    Digits row[BM], column[BN];  // where the results belong
};
struct Described {
    Depth at[2 * BATCH * ENTRIES];
};

// The indices of BATCHES times BATCH tiles of the sum, by the last threads first: every second batch lies in the same place.
// The sum has `tiles`; behind the last one comes the first.
template <int BATCHES>
__device__ __forceinline__ void describe(const Params& p, Described& described, int batch, long long first, int tiles) {
    #pragma unroll 1
    for (int i = THREADS - 1 - (int)threadIdx.x; i < BATCHES * BATCH * ENTRIES; i += THREADS) {
        const int tile = batch * BATCH + i / ENTRIES;
        const Digits digits =
            digits_of<K_KIND>(first + (long long)(STAYS ? tile % tiles : tile) * BK + i % ENTRIES * DESCRIBED, p);
        Depth found;
        found.gathered = gathered_part<K_KIND>(digits, p, found.u);
        found.plain = plain_part<K_KIND>(digits, p);
        described.at[batch % 2 * BATCH * ENTRIES + i] = found;
    }
}

template <class S> __device__ __forceinline__ void hold(
    const Params& p, typename S::Held& held, const typename S::Stored* from, const Tables& tables, long long first, int left
) {
    held.from = from;
    held.left = S::ALONG_K ? (left - S::outer(0) + S::STEP - 1) / S::STEP : S::outer(0) < left;
    if constexpr (S::IS_PLAIN) {
        held.start = (Offset)((first + S::outer(0)) * p.plain_channel);
        held.pace = S::ALONG_K ? (Offset)(S::STEP * p.plain_channel) : (Offset)0;
    } else if constexpr (S::IS_HELD) {
        #pragma unroll
        for (int i = 0; i < S::OUTERS; ++i) held.outer[i] = tables.gathered[S::exists(i) ? S::outer(i) : 0];
    }
}

// Starts a part of one tile on its way, of PARTS; what goes through registers waits there. There are no branches, so that
// it is done between products; behind the last tile nothing is read.
template <class S, int PARTS> __device__ __forceinline__ void fetch(
    const Params& p, typename S::Held& held, const Tables& tables, const Depth* described, int k_left, int part,
    unsigned char* tile, typename S::Waiting& waiting
) {
    typedef typename S::Stored Stored;
    if (S::ALONG_K && part == 0) held.depth = described[S::along() / DESCRIBED];
    #pragma unroll
    for (int i = 0; i < S::COUNT; ++i) {
        if (i * PARTS / S::COUNT != part || !S::exists(i)) continue;
        const int k = S::k(i);
        const Depth depth = S::ALONG_K ? held.depth : described[k / DESCRIBED];
        bool valid = k < k_left && (S::ALONG_K ? i : 0) < held.left;
        Offset offset;
        if constexpr (S::IS_PLAIN) {
            offset = held.start + (Offset)i * held.pace + depth.plain;
        } else {
            const Outer outer = S::IS_HELD ? held.outer[S::IS_HELD && S::ALONG_K ? i : 0] : tables.gathered[S::outer(i)];
            offset = outer.offset + depth.gathered;
            if constexpr (CHECKED) {
                #pragma unroll
                for (int d = 0; d < SPATIAL; ++d)
                    valid = valid & ((unsigned int)(outer.u[d] + depth.u[d]) < (unsigned int)p.image_size[FIRST + d]);
            }
        }
        const Stored* const from = held.from + offset;
        if constexpr (S::IS_COPIED) {
            copy_async<S::V * (int)sizeof(Stored)>(tile + S::Tile::at(k, S::outer(i)), from, valid);
        } else {
            load_if<S::V>(valid, from, waiting.element[i]);
        }
    }
}

template <class T, class Stored> __device__ __forceinline__ T staged(Stored x) {
    if constexpr (same<T, Stored>) return x;
    else return narrow<T>(widen<float>(x));
}

// What waits in registers enters the tile.
template <class S> __device__ __forceinline__ void put(unsigned char* tile, const typename S::Waiting& waiting) {
    typedef typename S::T T;
    if constexpr (!S::IS_COPIED) {
        // Known anew for each tile: as many places as elements would not fit the registers.
        int k0 = S::k(0), outer0 = S::outer(0);
#ifdef __CUDA_ARCH__
        asm volatile("" : "+r"(k0), "+r"(outer0));
#endif
        #pragma unroll
        for (int i = 0; i < S::COUNT; ++i) {
            if (!S::exists(i)) continue;
            const int k = k0 + (S::ALONG_K ? 0 : i * S::STEP), outer = outer0 + (S::ALONG_K ? i * S::STEP : 0);
            #pragma unroll
            for (int e = 0; e < S::V; ++e)
                *(T*)(tile + S::Tile::at(k + (S::ALONG_K ? e : 0), outer + (S::ALONG_K ? 0 : e))) =
                    staged<T>(waiting.element[i][e]);
        }
    }
}
