// Rows that consist of short contiguous runs in many segments. Rows are channels, and segments are images; or rows are groups
// of channels of one channels-last image, and segments are its pixels. A CTA has CHANNELS adjacent rows, so that its part of a
// segment is contiguous. A thread reads the same vector of each of its segments. Each of its VECTOR elements always belongs to
// the same row, so sums run over segments first and over the elements of a row afterwards.
//
// The file of the direction defines SUMS, the sums of each element in the first pass; SWEEPS, whether a second pass over the
// cached elements follows; and the use of the sums.

constexpr int WARPS = THREADS / 32, AT_ONCE = 64 / (int)sizeof(Stored) > 1 ? 64 / (int)sizeof(Stored) : 1;

extern __shared__ uint4 line_words[];

template <int N> struct Number {
    static constexpr int value = N;
};

struct Lines {
    Stored* kept;
    Compute *parts, *segments, *totals, *inbox;  // thread sums, their group sums, sums over segments, other CTAs' sums
    int begin, images, packs, plane, channels, lanes, lane, place;
    int of_line;  // elements of the CTA's rows in a segment
    int first, first_channel, part;  // element of a segment, row, rank in the cluster
    bool reads;
    // Coordinates of the thread's vector in segment n of the CTA.
    __device__ __forceinline__ void locate_line(int n, int (&at)[RANK]) const {
        if constexpr (RANK == 3) at[0] = (int)blockIdx.y;
        at[RANK - 2] = first, at[RANK - 1] = begin + n;
    }
    // Coordinates of an element of a row of the CTA, without the segment.
    __device__ __forceinline__ void locate_row(int row, int element, int (&at)[ROW_RANK]) const {
        if constexpr (ROW_RANK == 3) at[0] = (int)blockIdx.y, at[1] = first_channel + row, at[2] = element;
        else at[0] = first_channel + row;
    }

    // The scale of an element of a row of the CTA.
    __device__ __forceinline__ Compute scale_at(const Params& p, int row, int element) const {
        int at[ROW_RANK];
        locate_row(row, element, at);
        Channel channel = {};
        of_channel(p, at, channel);
        return channel.scale[0];
    }

    // Calls each(n, vector) for every cached vector of this thread.
    template <class Each> __device__ __forceinline__ void each(Each each) const {
        for (int n = lane; reads && n < images; n += lanes) each(n, kept[n * packs + place]);
    }
};

__device__ __forceinline__ Lines lines_of(const Params& p, int block) {
    Lines mine;
    mine.packs = (int)p.packs, mine.plane = (int)p.plane;
    const int tile = block / parts_of(p);
    mine.part = block - tile * parts_of(p), mine.first_channel = tile * CHANNELS;
    const int parts = parts_of(p), all = (int)p.images, most = (all + parts - 1) / parts;
    mine.begin = mine.part * most;
    mine.images = all - mine.begin < most ? all - mine.begin : most;  // 0 or negative for a CTA beyond the last segment
    const int left = (int)p.channels - mine.first_channel;
    mine.channels = left < CHANNELS ? left : CHANNELS;
    mine.lanes = THREADS / mine.packs;
    mine.lane = (int)threadIdx.x / mine.packs, mine.place = (int)threadIdx.x - mine.lane * mine.packs;
    mine.first = mine.first_channel * mine.plane + mine.place * VECTOR;
    mine.of_line = mine.channels * mine.plane;
    mine.reads = mine.lane < mine.lanes && mine.place * VECTOR < mine.of_line;
    mine.kept = (Stored*)line_words;
    mine.parts = (Compute*)(mine.kept + (KEEPS ? most * mine.packs : 0));
    mine.segments = mine.parts + THREADS * HANDED;
    mine.totals = mine.segments + THREADS;
    mine.inbox = mine.totals + SUMS * mine.packs * VECTOR;
    return mine;
}

// Reduces the sums of threads to sums of rows, in a fixed order: over groups of segment lanes, over these groups, and over the
// elements of a row.
template <int N>
__device__ __forceinline__ void over_rows(
    const Params& p, const Lines& mine, const Compute (&sum)[N][VECTOR], Compute (*found)[CHANNELS]
) {
    const int thread = (int)threadIdx.x, warp = thread / 32, elements = mine.packs * VECTOR, handed = mine.packs * HANDED;
    const int most = THREADS / handed, lanes = mine.lanes, segments = most < 2 ? 1 : lanes < most ? lanes : most;
    const int of_segment = (lanes + segments - 1) / segments;
    #pragma unroll
    for (int v = 0; v < N; ++v)
        #pragma unroll
        for (int first = 0; first < VECTOR; first += HANDED) {
            const auto put = [&](int i, Compute total) {
                const int e = i / mine.packs, place = i - e * mine.packs;
                mine.totals[v * elements + place * VECTOR + first + e] = total;
            };
            if (mine.lane < lanes)
                #pragma unroll
                for (int e = 0; e < HANDED; ++e)
                    mine.parts[(mine.lane * HANDED + e) * mine.packs + mine.place] = sum[v][first + e];
            __syncthreads();
            for (int i = thread; i < handed * segments; i += THREADS) {
                const int segment = i / handed, place = i - segment * handed, begin = segment * of_segment;
                const int end = begin + of_segment < lanes ? begin + of_segment : lanes;
                Compute total = (Compute)0;
                for (int lane = begin; lane < end; ++lane) total += mine.parts[lane * handed + place];
                if (segments == 1) put(place, total);
                else mine.segments[i] = total;
            }
            __syncthreads();
            if (segments == 1) continue;
            for (int i = thread; i < handed; i += THREADS) {
                Compute total = (Compute)0;
                for (int segment = 0; segment < segments; ++segment) total += mine.segments[segment * handed + i];
                put(i, total);
            }
            __syncthreads();
        }
    for (int number = warp; number < N * mine.channels; number += WARPS) {
        const int v = number / mine.channels, row = number - v * mine.channels;
        const Compute* const from = mine.totals + v * elements + row * mine.plane;
        Compute total = (Compute)0;
        for (int i = thread % 32; i < mine.plane; i += 32) {
            if constexpr (OF_PLACES) multiply_add(total, mine.scale_at(p, row, i), from[i]);
            else total += from[i];
        }
        #pragma unroll
        for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
        if (thread % 32 == 0) found[v][row] = total;
    }
    __syncthreads();
}

// Elements of a row in the segments of one CTA.
__device__ __forceinline__ Compute elements_of_part(const Params& p, int part) {
    const int all = (int)p.images, parts = parts_of(p), most = (all + parts - 1) / parts, left = all - part * most;
    const int lines = left < 0 ? 0 : left < most ? left : most;
    return (Compute)lines * (Compute)p.plane;
}

// The second sum of one slice, corrected for the common mean. The second sum of a forward kernel is the squared deviation from
// the slice's own mean, so the distance of both means is added: M2 + n * (mean - common mean)^2.
__device__ __forceinline__ Compute joined(const Params& p, int part, Compute first, Compute second, Compute all) {
    if constexpr (SWEEPS) {
        const Compute elements = elements_of_part(p, part);
        if (elements > (Compute)0) {
            const Compute apart = first / elements - all / (Compute)p.elements;
            second += elements * apart * apart;
        }
    }
    return second;
}

// The rows of a thread's elements.
__device__ __forceinline__ void find_rows(const Lines& mine, int (&rows)[VECTOR]) {
    const int first = mine.place * VECTOR % mine.of_line;
    int row = first / mine.plane, element = first - row * mine.plane;
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
        rows[e] = row;
        if (++element == mine.plane) {
            element = 0;
            if (++row == mine.channels) row = 0;
        }
    }
}

// Loads the statistics and factors of the thread's rows.
__device__ __forceinline__ void know(const Params& p, const Lines& mine, const int (&rows)[VECTOR], Row& row) {
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
        const int element = mine.place * VECTOR + e - rows[e] * mine.plane;  // beyond the row if the thread is inactive
        int at[ROW_RANK];
        mine.locate_row(rows[e], element < mine.plane ? element : mine.plane - 1, at);
        Channel channel = {};
        of_channel(p, at, channel);
        learn_channel(channel, row, e);
    }
}

// Reads every vector of this thread from memory, and calls each(n, vector).
template <class Each> __device__ __forceinline__ void take_all(const Params& p, const Lines& mine, Policy policy, Each each) {
    const auto take_some = [&](int n, auto count) {
        constexpr int many = decltype(count)::value;
        Stored some[many];
        #pragma unroll
        for (int i = 0; i < many; ++i) {
            int at[RANK];
            mine.locate_line(n + i * mine.lanes, at);
            take(p, at, some[i], policy);
        }
        #pragma unroll
        for (int i = 0; i < many; ++i) each(n + i * mine.lanes, some[i]);
    };
    if (mine.reads) {
        int n = mine.lane;
        for (; n + (AT_ONCE - 1) * mine.lanes < mine.images; n += AT_ONCE * mine.lanes) take_some(n, Number<AT_ONCE>());
        for (; n < mine.images; n += mine.lanes) take_some(n, Number<1>());
    }
}

// Computes the sums of rows in this slice, found[0] and found[1], and loads the factors of the rows.
__device__ __forceinline__ void find_sums(
    const Params& p, const Lines& mine, int (&rows)[VECTOR], Policy policy, Row& row, Compute (*found)[CHANNELS]
) {
    find_rows(mine, rows);
    if constexpr (!SWEEPS) know(p, mine, rows, row);
    Compute sum[SUMS][VECTOR] = {};
    take_all(p, mine, policy, [&](int n, const Stored& pack) {
        if constexpr (KEEPS) mine.kept[n * mine.packs + mine.place] = pack;
        add(widened(pack), row, sum);
    });
    over_rows(p, mine, sum, found);
    if constexpr (SWEEPS) {
        __shared__ Compute mean[CHANNELS];
        #pragma unroll 1
        for (int i = (int)threadIdx.x; i < mine.channels; i += THREADS) mean[i] = found[0][i] / elements_of_part(p, mine.part);
        __syncthreads();
        Compute again[1][VECTOR] = {};
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) row.mean[e] = mean[rows[e]];
        mine.each([&](int, const Stored& pack) { add_again(widened(pack), row, again); });
        over_rows(p, mine, again, found + 1);
        know(p, mine, rows, row);  // these loads overlap the wait for other CTAs
    }
}

// Stores the contribution of each row element to the gradients of scale and bias, by image and CTA.
__device__ __forceinline__ void leave_places(const Params& p, const Lines& mine) {
    const int elements = mine.packs * VECTOR;
    for (int i = (int)threadIdx.x; i < mine.of_line; i += THREADS) {
        int at[ROW_RANK];
        mine.locate_row(i / mine.plane, i % mine.plane, at);
        at[0] = at[0] * parts_of(p) + mine.part;
        store_row(p, at, mine.totals[i], mine.totals[elements + i]);
    }
}

// Stores the sums of rows, and gives each element the factors that depend on them.
__device__ __forceinline__ void conclude(
    const Params& p, const Lines& mine, const int (&rows)[VECTOR], Row& row, Compute (*found)[CHANNELS]
) {
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < mine.channels; i += THREADS) {
        if (!OF_PLACES && mine.part == 0) {
            int at[ROW_RANK];
            mine.locate_row(i, 0, at);
            store_row(p, at, found[0][i], found[1][i]);
        }
        const Vec<Compute, 2> needed = needed_of(p, found[0][i], found[1][i]);
        found[0][i] = needed.data[0], found[1][i] = needed.data[1];
    }
    __syncthreads();
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) learn(found[0][rows[e]], found[1][rows[e]], row, e);
}
