// Convolution as a matrix product whose operands are gathered while they are read: all three directions.
//
//   C[row, column] = sum over k of A[row, k] * B[k, column]         one product per group
//
// One operand is gathered from an image (x, or dy for dgrad), the other is plain. An index of the product is one of
//   PIXEL    (n, spatial position)   CHANNEL   one channel   FILTER   (tap, channel)
// and stands for coordinates that add up with those of k. For the gathered operand,
//   q[d] = outer.u[d] + k.u[d]    is the coordinate along spatial axis d. Outside the image, the element is 0.
//
// A strided dgrad is one product for each residue of dx's positions modulo the stride, over the taps that reach it.
// The grid's z counts them: sizes and starts are fields with an entry for each.
//
// Where both operands are bytes whose channels are neighbours, QUADS, an element is four of them.
//
// Coordinates are decoded once: for rows and columns when a block starts, for k once per tile, into shared tables.

struct __align__(16) Index {
    Offset offset;   // elements from the operand's first to this index's part
    int u[SPATIAL];  // spatial part
    int lane[1];     // n for pixels, the channel else: the coordinate that a prologue asks for
};

struct __align__(16) Depth {
    Offset gathered, plain;
    int u[SPATIAL];
    int lane[1];
};

// The digits of the index that a thread describes next: BK further on, by carries; or, where a tile of k lies in
// one tap, the same place in the next tap's first tile.
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

// Where V neighbouring elements of an operand are; outside the image, and beyond the product, they are 0.
struct Spot {
    Distance at;   // bytes from the base, which moves on with the channels: one addition for all threads
    Offset start;  // the outer index's part, where nothing else is asked of it
    bool valid;
    int q[PROLOGUE ? SPATIAL : 1];
    int outer, k;  // the other coordinates, for a prologue
};

__device__ __forceinline__ Spot gathered_spot(const Params& p, const Index& outer, const Depth& k) {
    Spot found;
    found.valid = true;
    found.at = (Distance)(outer.offset + k.gathered) * (Distance)sizeof(Gathered);
    found.outer = outer.lane[0];
    found.k = k.lane[0];
    #pragma unroll
    for (int d = FIRST; d < 3; ++d) {
        const int at = outer.u[d - FIRST] + k.u[d - FIRST];
        if constexpr (CHECKED) found.valid = found.valid && (unsigned int)at < (unsigned int)p.image_size[d];
        if constexpr (PROLOGUE) found.q[d - FIRST] = at;
    }
    return found;
}

// What a thread holds of an operand until it is stored in the tile, where it is converted.
template <bool A, class Yes, class No> struct Either { typedef Yes type; };
template <class Yes, class No> struct Either<false, Yes, No> { typedef No type; };
typedef typename Either<PROLOGUE, Staged, Gathered>::type Held;

template <int V>
__device__ __forceinline__ void read_gathered(
    const Params& p, const char* from, int group, const Spot& spot, int further, Held (&to)[V]
) {
    if constexpr (PROLOGUE) {
        #pragma unroll
        for (int e = 0; e < V; ++e) to[e] = (Staged)0;
        if (!spot.valid) return;
        int at[6] = {0, group, 0, 0, 0, 0};
        at[0] = K_KIND == PIXEL ? spot.k : spot.outer;
        at[2] = K_KIND == PIXEL ? spot.outer : spot.k + further;
        for (int d = FIRST; d < 3; ++d) at[3 + d] = spot.q[d - FIRST];
        prologue(p, at, to);
    } else {
        load_if<V>(spot.valid, (const Gathered*)from, to);
    }
}

template <int V>
__device__ __forceinline__ void read_plain(const char* from, bool valid, Plain (&to)[V]) {
    load_if<V>(valid, (const Plain*)from, to);
}

// sum + a * b; or, of four bytes each, the sum of four products.
__device__ __forceinline__ void add_quads(int& sum, int a, int b) {
#ifdef __CUDA_ARCH__
    if constexpr (A_IS_SIGNED && B_IS_SIGNED) asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    else if constexpr (A_IS_SIGNED) asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    else if constexpr (B_IS_SIGNED) asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    else asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
#else
    for (int e = 0; e < 4; ++e) {
        const unsigned char one = (unsigned char)(a >> 8 * e), other = (unsigned char)(b >> 8 * e);
        multiply_add(sum, A_IS_SIGNED ? (int)(int8_t)one : (int)one, B_IS_SIGNED ? (int)(int8_t)other : (int)other);
    }
#endif
}

template <class Sum, class Factor> __device__ __forceinline__ void accumulate(Sum& sum, Factor a, Factor b) {
    if constexpr (QUADS) add_quads(sum, a, b);
    else multiply_add(sum, a, b);
}

static_assert(THREADS >= BK, "the table of a tile's k is written in one step");

// A thread's part of one operand tile: chunks of V elements, along k or along the outer index.
template <int OUTER, int V, bool ALONG_K> struct Chunks {
    static constexpr int PER_K = ALONG_K ? BK / V : BK, PER_OUTER = ALONG_K ? OUTER : OUTER / V;
    static constexpr int ALL = PER_K * PER_OUTER, COUNT = (ALL + THREADS - 1) / THREADS;
    // Neighbouring threads read neighbouring memory: along k first, or along the outer index first. Where the threads
    // cover whole runs, a thread's chunks differ in the other index alone, by a constant.
    static constexpr int RUN = ALONG_K ? PER_K : PER_OUTER;
    static constexpr bool WHOLE = THREADS % RUN == 0;
    static constexpr int STEP = THREADS / RUN;
    static __device__ __forceinline__ int along(int i) {
        return (WHOLE ? (int)threadIdx.x % RUN : (i * THREADS + (int)threadIdx.x) % RUN) * V;
    }
    static __device__ __forceinline__ int across(int i) {
        return WHOLE ? (int)threadIdx.x / RUN + i * STEP : (i * THREADS + (int)threadIdx.x) / RUN;
    }
    static __device__ __forceinline__ int k(int i) { return ALONG_K ? along(i) : across(i); }
    static __device__ __forceinline__ int outer(int i) { return ALONG_K ? across(i) : along(i); }
    static __device__ __forceinline__ bool exists(int i) {
        return ALL % THREADS == 0 || i * THREADS + (int)threadIdx.x < ALL;
    }
    // With one tap in a tile, chunks of one outer index differ by channels only: one spot stands for all of them.
    static constexpr bool IN_LINE = ONE_TAP && !ALONG_K && WHOLE;
    static constexpr int SPOTS = IN_LINE ? 1 : COUNT;
};

using ChunksA = Chunks<BM, VECTOR_A, ALONG_K_A>;
using ChunksB = Chunks<BN, VECTOR_B, ALONG_K_B>;

struct Tables {
    Index gathered[A_IS_PLAIN ? BN : BM];
    Offset plain[A_IS_PLAIN ? BM : BN];
    Depth depth[2][BK];
    Digits row[BM], column[BN];  // where the results belong
    Digits digits[BK];           // of the k that each of the first threads describes next
};

// The spots of a thread's chunks. With one tap in a tile they are kept until the next tap, and the base moves on:
// `base` and `further` are of this tile's first channel, for all threads.
template <class C, int V, bool IS_PLAIN, class T>
__device__ __forceinline__ void fetch(
    const Params& p, const char* base, int further, int group, const Tables& tables, int buffer, bool is_new,
    int k_left, int outer_left, Spot (&spots)[C::SPOTS], T (&to)[C::COUNT][V]
) {
    constexpr int SIZE = IS_PLAIN ? (int)sizeof(Plain) : (int)sizeof(Gathered);
    const Distance lane_bytes = (Distance)(IS_PLAIN ? p.plain_lane : p.gathered_c) * (Distance)SIZE;
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        if (!C::exists(i)) continue;
        const int k = C::k(i), outer = C::outer(i);
        Spot& spot = spots[C::IN_LINE ? 0 : i];
        if ((!C::IN_LINE || i == 0) && (!ONE_TAP || is_new)) {
            const Depth& depth = tables.depth[buffer][k];
            if constexpr (IS_PLAIN) spot.at = (Distance)(spot.start + depth.plain) * (Distance)SIZE;
            else if constexpr (!CHECKED && !PROLOGUE) spot.at = (Distance)(spot.start + depth.gathered) * (Distance)SIZE;
            else spot = gathered_spot(p, tables.gathered[outer], depth);
            const bool inside = (ONE_TAP || k < k_left) && outer < outer_left;
            if constexpr (IS_PLAIN || (!CHECKED && !PROLOGUE)) spot.valid = inside;
            else spot.valid = spot.valid && inside;
        }
        const int ahead = C::IN_LINE ? i * C::STEP : 0;
        const char* const here = base + spot.at + (unsigned long long)lane_bytes * (unsigned int)ahead;
        if constexpr (IS_PLAIN) read_plain<V>(here, spot.valid, to[i]);
        else read_gathered<V>(p, here, group, spot, further + ahead, to[i]);
    }
}

template <class C, bool IS_PLAIN>
__device__ __forceinline__ void begin(const Tables& tables, Spot (&spots)[C::SPOTS]) {
    #pragma unroll
    for (int i = 0; i < C::SPOTS; ++i) {
        const int outer = C::exists(i) ? C::outer(i) : 0;
        if constexpr (IS_PLAIN) spots[i].start = tables.plain[outer];
        else spots[i].start = tables.gathered[outer].offset;
    }
}

template <class C, int V, int PITCH, bool ALONG_K, class T>
__device__ __forceinline__ void put(Staged* tile, const T (&from)[C::COUNT][V]) {
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        if (!C::exists(i)) continue;
        const int k = C::k(i), outer = C::outer(i);
        #pragma unroll
        for (int e = 0; e < V; ++e) tile[(ALONG_K ? k + e : k) * PITCH + (ALONG_K ? outer : outer + e)] = widen<Staged>(from[i][e]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) implicit_gemm(const __grid_constant__ Params p) {
    pdl_wait();
    constexpr int TILE_BYTES = 2 * BK * (PITCH_A + PITCH_B) * (int)sizeof(Staged);
    constexpr int SLAB_BYTES = THREADS_M * BN * (int)sizeof(Accum);
    __shared__ __align__(16) unsigned char memory[TILE_BYTES > SLAB_BYTES ? TILE_BYTES : SLAB_BYTES];
    __shared__ Tables tables;
    Staged(&tile_a)[2][BK * PITCH_A] = *(Staged(*)[2][BK * PITCH_A])memory;
    Staged(&tile_b)[2][BK * PITCH_B] = *(Staged(*)[2][BK * PITCH_B])(memory + sizeof(tile_a));

    // Blocks of one group walk down the columns of tiles first, so that neighbours share rows in the cache.
    const long long rows = p.rows[residue()], columns = p.columns[residue()];
    const long long tiles_m = (rows + BM - 1) / BM, tiles_n = (columns + BN - 1) / BN;
    const long long block = blockIdx.x;
    if (RESIDUES > 1 && block >= p.groups * tiles_m * tiles_n) return;
    const int group = (int)(block / (tiles_m * tiles_n));
    const long long tile = block - group * (tiles_m * tiles_n);
    const long long row0 = tile / tiles_n * BM, column0 = tile % tiles_n * BN;
    const long long depth = p.depth[residue()], share = p.depth_per_block[residue()];
    const long long first = (long long)blockIdx.y * share, last = first + share < depth ? first + share : depth;

    constexpr int A_KIND = A_IS_PLAIN ? CHANNEL : PIXEL;
    constexpr int B_KIND = A_IS_PLAIN ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;
    constexpr int OUTER_KIND = A_IS_PLAIN ? B_KIND : A_KIND;  // of the gathered operand
    const long long gathered0 = A_IS_PLAIN ? column0 : row0, plain0 = A_IS_PLAIN ? row0 : column0;
    for (int i = threadIdx.x; i < (A_IS_PLAIN ? BN : BM); i += THREADS) {
        const Digits digits = digits_of<OUTER_KIND>(gathered0 + i, p);
        Index found;
        found.offset = gathered_part<OUTER_KIND>(digits, p, found.u);
        found.lane[0] = lane_of<OUTER_KIND>(digits);
        tables.gathered[i] = found;
    }
    for (int i = threadIdx.x; i < BM; i += THREADS) tables.row[i] = output_digits<A_KIND>(row0 + i, p);
    for (int i = threadIdx.x; i < BN; i += THREADS) tables.column[i] = output_digits<B_KIND>(column0 + i, p);
    for (int i = threadIdx.x; i < (A_IS_PLAIN ? BM : BN); i += THREADS)
        tables.plain[i] = (Offset)((plain0 + i) * p.plain_channel);
    const Gathered* gathered = (const Gathered*)p.gathered + group * p.gathered_g;
    const Plain* plain = (const Plain*)p.plain + group * p.plain_g + p.plain_start[residue()];

    if (threadIdx.x < BK) tables.digits[threadIdx.x] = digits_of<K_KIND>(first + threadIdx.x, p);
    auto describe = [&](int buffer) {  // the next BK indices of k, one for each of the first threads
        if (threadIdx.x < BK) {
            Digits depth = tables.digits[threadIdx.x];
            Depth found;
            found.gathered = gathered_part<K_KIND>(depth, p, found.u);
            found.plain = plain_part<K_KIND>(depth, p);
            found.lane[0] = lane_of<K_KIND>(depth);
            tables.depth[buffer][threadIdx.x] = found;
            advance<K_KIND>(depth, p);
            tables.digits[threadIdx.x] = depth;
        }
    };

    Accum sum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = (Accum)0;

    typename Either<A_IS_PLAIN, Plain, Held>::type next_a[ChunksA::COUNT][VECTOR_A];
    typename Either<A_IS_PLAIN, Held, Plain>::type next_b[ChunksB::COUNT][VECTOR_B];
    const int rows_left = (int)(rows - row0 < BM ? rows - row0 : BM);
    const int columns_left = (int)(columns - column0 < BN ? columns - column0 : BN);
    const int tiles = (int)((last - first + BK - 1) / BK), tail = (int)(last - first - (long long)(tiles - 1) * BK);
    // Tiles until the next one that the table describes: each, or the first of every tap.
    const int tiles_per_tap = ONE_TAP ? (int)p.tap_digits[3 * residue()] / BK : 1;
    int until_new = 0, buffer = 0;
    const int started = ONE_TAP ? (int)((first / BK) % tiles_per_tap) : 0;
    Spot spots_a[ChunksA::SPOTS], spots_b[ChunksB::SPOTS];
    const char *gathered_at = (const char*)gathered, *plain_at = (const char*)plain;
    int further = 0;
    auto fetch_tile = [&](int i) {
        const int left = i + 1 < tiles ? BK : tail;
        const bool is_new = until_new == 0;
        if (is_new) {
            gathered_at = (const char*)gathered;
            plain_at = (const char*)plain;
            further = 0;
        } else {
            gathered_at += BK * p.gathered_c * (int)sizeof(Gathered);
            plain_at += BK * p.plain_lane * (int)sizeof(Plain);
            further += BK;
        }
        fetch<ChunksA, VECTOR_A, A_IS_PLAIN>(
            p, A_IS_PLAIN ? plain_at : gathered_at, further, group, tables, buffer, is_new, left, rows_left, spots_a, next_a);
        fetch<ChunksB, VECTOR_B, !A_IS_PLAIN>(
            p, A_IS_PLAIN ? gathered_at : plain_at, further, group, tables, buffer, is_new, left, columns_left, spots_b, next_b);
        if (is_new) {
            buffer ^= 1;
            until_new = tiles_per_tap - (i == 0 ? started : 0);
        }
        --until_new;
        return is_new;
    };

    const Place mine = place();
    describe(0);
    __syncthreads();
    begin<ChunksA, A_IS_PLAIN>(tables, spots_a);
    begin<ChunksB, !A_IS_PLAIN>(tables, spots_b);
    if (tiles > 0) {  // no tap reaches some residues
        fetch_tile(0);
        describe(1);
    }
    int stage = 0;
    for (int t = 0; t < tiles; ++t) {
        put<ChunksA, VECTOR_A, PITCH_A, ALONG_K_A>(tile_a[stage], next_a);
        put<ChunksB, VECTOR_B, PITCH_B, ALONG_K_B>(tile_b[stage], next_b);
        __syncthreads();
        const bool described = t + 1 < tiles && fetch_tile(t + 1);
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            Staged a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = tile_a[stage][k * PITCH_A + row_of(mine, i)];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = tile_b[stage][k * PITCH_B + column_of(mine, j)];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) accumulate(sum[i][j], a[i], b[j]);
        }
        // The other table was read before the barrier above by everyone.
        if (described) describe(buffer);
        stage ^= 1;
    }

    __syncthreads();
    const auto emit = [&](int row, int column, const Accum (&acc)[WIDTH]) {
        if constexpr (SPLIT) {  // partial sums, added in order by a kernel of their own
            const long long at = p.partial_start[residue()] + blockIdx.y * p.results[residue()] +
                                 (group * rows + row0 + row) * columns + column0 + column;
            Vec<Accum, WIDTH> pack;
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) pack[e] = acc[e];
            store_vec<WIDTH>(p.partial + at, pack);
        } else {
            int at[6] = {0, 0, 0, 0, 0, 0};
            at[K_KIND == PIXEL ? 0 : 1] = group;
            output_coordinates<A_KIND>(p, tables.row[row], at);
            output_coordinates<B_KIND>(p, tables.column[column], at);
            epilogue(p, at, acc);
        }
    };
    leave((Accum*)memory, mine, sum, rows_left, columns_left, emit);
}
