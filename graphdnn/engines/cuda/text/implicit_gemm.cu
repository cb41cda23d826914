// Convolution as a matrix product whose operands are gathered while they are read: all three directions.
//
//   C[row, column] = sum over k of A[row, k] * B[k, column]         one product per group
//
// One operand is gathered from an image (x, or dy for dgrad), the other is plain. An index of the product is one of
//   PIXEL    (n, spatial position)   CHANNEL   one channel   FILTER   (tap, channel)
// and stands for coordinates that add up with those of k. For the gathered operand,
//   q[d] = outer.u[d] + k.u[d]    is the coordinate along spatial axis d (times DIVIDED strides, for dgrad),
// valid inside the image and, for dgrad, where the stride divides it. Outside, the element is 0.
//
// Coordinates are decoded once: for rows and columns when a block starts, for k once per tile, into shared tables.

constexpr int PIXEL = 0, CHANNEL = 1, FILTER = 2;

struct Index {
    long long offset;  // elements from the operand's first to this index's part
    int u[3];          // spatial part
    int lane;          // n for pixels, the channel else: the coordinate that a prologue asks for
};

struct Depth {
    long long gathered, plain;
    int u[3];
    int lane;
};

__device__ __forceinline__ void split(long long index, const long long (&size)[3], int (&to)[3]) {
    unsigned long long rest = (unsigned long long)index;
    if (rest < (1ull << 32)) {
        unsigned int small = (unsigned int)rest;
        to[2] = (int)(small % (unsigned int)size[2]);
        small /= (unsigned int)size[2];
        to[1] = (int)(small % (unsigned int)size[1]);
        to[0] = (int)(small / (unsigned int)size[1]);
    } else {
        to[2] = (int)(rest % (unsigned long long)size[2]);
        rest /= (unsigned long long)size[2];
        to[1] = (int)(rest % (unsigned long long)size[1]);
        to[0] = (int)(rest / (unsigned long long)size[1]);
    }
}

// (n, position) of a pixel index.
__device__ __forceinline__ int split_pixel(long long index, const Params& p, int (&to)[3]) {
    const long long n = index / p.pixels;
    split(index - n * p.pixels, p.pixel_size, to);
    return (int)n;
}

// (channel, tap) of an index that counts channels fastest.
__device__ __forceinline__ int split_tap(long long index, const Params& p, int (&to)[3]) {
    const long long tap = index / p.channels;
    split(tap, p.tap_size, to);
    return (int)(index - tap * p.channels);
}

// The gathered operand's part of an index.
template <int KIND> __device__ __forceinline__ Index gathered_index(long long index, const Params& p) {
    Index found;
    int at[3];
    if constexpr (KIND == PIXEL) {
        found.lane = split_pixel(index, p, at);
        found.offset = found.lane * p.gathered_n;
        for (int d = 0; d < 3; ++d) found.u[d] = (int)(at[d] * p.pixel_step[d] + p.pixel_start[d]);
    } else {
        found.lane = split_tap(index, p, at);
        found.offset = found.lane * p.gathered_c;
        for (int d = 0; d < 3; ++d) found.u[d] = (int)(at[d] * p.tap_step[d]);
    }
    return found;
}

// The plain operand's part of an index: w by (tap, channel) or channel, dy by pixel or channel.
template <int KIND> __device__ __forceinline__ long long plain_offset(long long index, const Params& p) {
    if constexpr (KIND == CHANNEL) return index * p.plain_channel;
    int at[3];
    const int lane = KIND == PIXEL ? split_pixel(index, p, at) : split_tap(index, p, at);
    long long offset = lane * p.plain_lane;
    for (int d = 0; d < 3; ++d) offset += at[d] * p.plain_spatial[d];
    return offset;
}

// The spatial coordinate, or -1 outside the image.
__device__ __forceinline__ int coordinate(int q, int d, const Params& p) {
    if constexpr (DIVIDED) {
        if (q < 0) return -1;
        const int step = (int)p.divisor[d];
        const int whole = (int)((unsigned int)q / (unsigned int)step);
        return whole * step == q && whole < (int)p.image_size[d] ? whole : -1;
    }
    return (unsigned int)q < (unsigned int)p.image_size[d] ? q : -1;
}

// V neighbouring elements of the gathered operand, 0 outside.
template <int V>
__device__ __forceinline__ void gather(
    const Params& p, int group, const Index& outer, const Depth& k, bool inside, Staged (&to)[V]
) {
    int q[3];
    bool valid = inside;
    #pragma unroll
    for (int d = 3 - SPATIAL; d < 3; ++d) {
        q[d] = coordinate(outer.u[d] + k.u[d], d, p);
        valid = valid && q[d] >= 0;
    }
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = (Staged)0;
    if (!valid) return;
    if constexpr (PROLOGUE) {
        int at[6] = {0, group, 0, 0, 0, 0};
        at[0] = K_KIND == PIXEL ? k.lane : outer.lane;
        at[2] = K_KIND == PIXEL ? outer.lane : k.lane;
        for (int d = 3 - SPATIAL; d < 3; ++d) at[3 + d] = q[d];
        prologue(p, at, to);
    } else {
        long long offset = outer.offset + k.gathered;
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) offset += q[d] * p.gathered_spatial[d];
        Gathered loaded[V];
        load<V>(p.gathered + (group * p.gathered_g + offset), Packed(), loaded);
        #pragma unroll
        for (int e = 0; e < V; ++e) to[e] = widen<Staged>(loaded[e]);
    }
}

template <int V>
__device__ __forceinline__ void fetch_plain(const Params& p, int group, long long offset, bool inside, Staged (&to)[V]) {
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = (Staged)0;
    if (!inside) return;
    Plain loaded[V];
    load<V>(p.plain + (group * p.plain_g + offset), Packed(), loaded);
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = widen<Staged>(loaded[e]);
}

constexpr int THREADS_M = BM / TM, THREADS_N = BN / TN;
constexpr int PITCH_A = BM + PAD, PITCH_B = BN + PAD;
constexpr int GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4;  // neighbours in one group of a thread's rows and columns
static_assert(THREADS == THREADS_M * THREADS_N, "one thread per register tile");
static_assert(THREADS >= BK, "the table of a tile's k is written in one step");

// A thread's part of one operand tile: chunks of V elements, along k or along the outer index.
template <int OUTER, int V, bool ALONG_K> struct Chunks {
    static constexpr int PER_K = ALONG_K ? BK / V : BK, PER_OUTER = ALONG_K ? OUTER : OUTER / V;
    static constexpr int ALL = PER_K * PER_OUTER, COUNT = (ALL + THREADS - 1) / THREADS;
    // Neighbouring threads read neighbouring memory: along k first, or along the outer index first.
    static __device__ __forceinline__ int k(int chunk) {
        return ALONG_K ? chunk % PER_K * V : chunk / PER_OUTER;
    }
    static __device__ __forceinline__ int outer(int chunk) {
        return ALONG_K ? chunk / PER_K : chunk % PER_OUTER * V;
    }
};

using ChunksA = Chunks<BM, VECTOR_A, ALONG_K_A>;
using ChunksB = Chunks<BN, VECTOR_B, ALONG_K_B>;

struct Tables {
    Index gathered[A_IS_PLAIN ? BN : BM];
    long long plain[A_IS_PLAIN ? BM : BN];
    Depth depth[2][BK];
};

template <class C, int V, bool IS_PLAIN>
__device__ __forceinline__ void fetch(
    const Params& p, int group, const Tables& tables, int buffer, long long k_left, long long outer_left,
    Staged (&to)[C::COUNT][V]
) {
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        const int chunk = i * THREADS + (int)threadIdx.x;
        const int k = C::k(chunk), outer = C::outer(chunk);
        const bool inside = (C::ALL % THREADS == 0 || chunk < C::ALL) && k < k_left && outer < outer_left;
        if (C::ALL % THREADS != 0 && chunk >= C::ALL) {
            for (int e = 0; e < V; ++e) to[i][e] = (Staged)0;
            continue;
        }
        if constexpr (IS_PLAIN) {
            fetch_plain<V>(p, group, tables.plain[outer] + tables.depth[buffer][k].plain, inside, to[i]);
        } else {
            gather<V>(p, group, tables.gathered[outer], tables.depth[buffer][k], inside, to[i]);
        }
    }
}

template <class C, int V, int PITCH, bool ALONG_K>
__device__ __forceinline__ void put(Staged* tile, const Staged (&from)[C::COUNT][V]) {
    #pragma unroll
    for (int i = 0; i < C::COUNT; ++i) {
        const int chunk = i * THREADS + (int)threadIdx.x;
        if (C::ALL % THREADS != 0 && chunk >= C::ALL) continue;
        const int k = C::k(chunk), outer = C::outer(chunk);
        #pragma unroll
        for (int e = 0; e < V; ++e) tile[(ALONG_K ? k + e : k) * PITCH + (ALONG_K ? outer : outer + e)] = from[i][e];
    }
}

// Which rows and columns of the tile a thread's registers hold.
__device__ __forceinline__ int row_of(int i) { return i / GM * (BM / (TM / GM)) + (int)threadIdx.x / THREADS_N * GM + i % GM; }
__device__ __forceinline__ int column_of(int j) { return j / GN * (BN / (TN / GN)) + (int)threadIdx.x % THREADS_N * GN + j % GN; }

// Coordinates of an output element: (n, g, channel, position), or (g, k, c, tap) for wgrad.
template <int KIND> __device__ __forceinline__ void output_coordinates(long long index, const Params& p, int (&at)[6]) {
    int inner[3];
    if constexpr (KIND == PIXEL) {
        at[0] = split_pixel(index, p, inner);
        for (int d = 0; d < 3; ++d) at[3 + d] = inner[d];
    } else if constexpr (KIND == FILTER) {
        at[2] = split_tap(index, p, inner);
        for (int d = 0; d < 3; ++d) at[3 + d] = inner[d];
    } else if constexpr (K_KIND == PIXEL) {
        at[1] = (int)index;
    } else {
        at[2] = (int)index;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) implicit_gemm(const __grid_constant__ Params p) {
    __shared__ __align__(16) Staged tile_a[2][BK * PITCH_A];
    __shared__ __align__(16) Staged tile_b[2][BK * PITCH_B];
    __shared__ Tables tables;

    // Blocks of one group walk down the columns of tiles first, so that neighbours share rows in the cache.
    const long long tiles_m = (p.rows + BM - 1) / BM, tiles_n = (p.columns + BN - 1) / BN;
    const long long block = blockIdx.x;
    const int group = (int)(block / (tiles_m * tiles_n));
    const long long tile = block - group * (tiles_m * tiles_n);
    const long long row0 = tile / tiles_n * BM, column0 = tile % tiles_n * BN;
    const long long first = (long long)blockIdx.y * p.depth_per_block;
    const long long last = first + p.depth_per_block < p.depth ? first + p.depth_per_block : p.depth;

    constexpr int A_KIND = A_IS_PLAIN ? CHANNEL : PIXEL;
    constexpr int B_KIND = A_IS_PLAIN ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        const long long row = row0 + i < p.rows ? row0 + i : p.rows - 1;
        if constexpr (A_IS_PLAIN) tables.plain[i] = plain_offset<A_KIND>(row, p);
        else tables.gathered[i] = gathered_index<A_KIND>(row, p);
    }
    for (int i = threadIdx.x; i < BN; i += THREADS) {
        const long long column = column0 + i < p.columns ? column0 + i : p.columns - 1;
        if constexpr (A_IS_PLAIN) tables.gathered[i] = gathered_index<B_KIND>(column, p);
        else tables.plain[i] = plain_offset<B_KIND>(column, p);
    }

    auto describe = [&](long long start, int buffer) {
        if (threadIdx.x < BK) {
            const long long k = start + threadIdx.x < p.depth ? start + threadIdx.x : p.depth - 1;
            const Index index = gathered_index<K_KIND>(k, p);
            Depth found;
            found.gathered = index.offset;
            found.plain = plain_offset<K_KIND>(k, p);
            for (int d = 0; d < 3; ++d) found.u[d] = index.u[d];
            found.lane = index.lane;
            tables.depth[buffer][threadIdx.x] = found;
        }
    };

    Accumulator sum[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = (Accumulator)0;

    Staged next_a[ChunksA::COUNT][VECTOR_A], next_b[ChunksB::COUNT][VECTOR_B];
    auto fetch_tile = [&](long long start, int buffer) {
        const long long left = last - start;
        fetch<ChunksA, VECTOR_A, A_IS_PLAIN>(p, group, tables, buffer, left, p.rows - row0, next_a);
        fetch<ChunksB, VECTOR_B, !A_IS_PLAIN>(p, group, tables, buffer, left, p.columns - column0, next_b);
    };

    describe(first, 0);
    __syncthreads();
    fetch_tile(first, 0);
    describe(first + BK, 1);
    int buffer = 0;
    for (long long k0 = first; k0 < last; k0 += BK) {
        put<ChunksA, VECTOR_A, PITCH_A, ALONG_K_A>(tile_a[buffer], next_a);
        put<ChunksB, VECTOR_B, PITCH_B, ALONG_K_B>(tile_b[buffer], next_b);
        __syncthreads();
        if (k0 + BK < last) fetch_tile(k0 + BK, buffer ^ 1);
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            Staged a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = tile_a[buffer][k * PITCH_A + row_of(i)];
            #pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = tile_b[buffer][k * PITCH_B + column_of(j)];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) multiply_add(sum[i][j], a[i], b[j]);
        }
        // The table of this buffer was read before the barrier above by everyone.
        describe(k0 + 2 * BK, buffer);
        buffer ^= 1;
    }

    if constexpr (SPLIT) {  // partial sums, added in order by a kernel of their own
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            const long long row = row0 + row_of(i);
            if (row >= p.rows) continue;
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                const long long column = column0 + column_of(j);
                if (column < p.columns)
                    p.partial[((blockIdx.y * p.groups + group) * p.rows + row) * p.columns + column] = sum[i][j];
            }
        }
    } else {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            const long long row = row0 + row_of(i);
            if (row >= p.rows) continue;
            int at[6] = {0, 0, 0, 0, 0, 0};
            at[K_KIND == PIXEL ? 0 : 1] = group;
            output_coordinates<A_KIND>(row, p, at);
            #pragma unroll
            for (int j = 0; j < TN; j += WIDTH) {
                const long long column = column0 + column_of(j);
                if (column >= p.columns) continue;
                output_coordinates<B_KIND>(column, p, at);
                Accumulator acc[WIDTH];
                #pragma unroll
                for (int e = 0; e < WIDTH; ++e) acc[e] = sum[i][j + e];
                epilogue(p, at, acc);
            }
        }
    }
}
