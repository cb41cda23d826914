// Rows that are planes of images, short pieces of memory. A block has CHANNELS rows that are neighbours, so that what it
// reads of an image, a line, is one piece. A thread has one place in all lines that it reads: each of its VECTOR
// elements is of the same row all the time, so sums go over lines first and then over the places of a row. Lines stay in
// shared memory: one read and one write.
//
// The direction says what is summed (SUMS of each element at once, and once more where SWEEPS), and what that is for.

constexpr int WARPS = THREADS / 32, AT_ONCE = 64 / (int)sizeof(Stored) > 1 ? 64 / (int)sizeof(Stored) : 1;
constexpr int HANDED = VECTOR < 4 ? VECTOR : 4;  // elements of a thread that go through shared memory at once

extern __shared__ uint4 line_words[];

template <int N> struct Number {
    static constexpr int value = N;
};

struct Lines {
    Stored* kept;
    Compute *parts, *totals;  // what threads hand over, and sums over lines
    int images, packs, plane, channels, lanes, lane, place;
    long long first;  // element of an image
    bool reads;

    // Every pack of this thread.
    template <class Each> __device__ __forceinline__ void each(Each each) const {
        for (int n = lane; reads && n < images; n += lanes) each(n, kept[n * packs + place]);
    }
};

__device__ __forceinline__ Lines lines_of(const Params& p) {
    Lines mine;
    mine.images = (int)p.images, mine.packs = (int)p.packs, mine.plane = (int)p.plane;
    const int left = (int)p.channels - (int)blockIdx.x * CHANNELS;
    mine.channels = left < CHANNELS ? left : CHANNELS;
    mine.lanes = THREADS / mine.packs;
    mine.lane = (int)threadIdx.x / mine.packs, mine.place = (int)threadIdx.x - mine.lane * mine.packs;
    mine.first = (long long)blockIdx.x * CHANNELS * mine.plane + mine.place * VECTOR;
    mine.reads = mine.lane < mine.lanes && mine.place * VECTOR < mine.channels * mine.plane;
    mine.kept = (Stored*)line_words;
    mine.parts = (Compute*)(mine.kept + mine.images * mine.packs);
    mine.totals = mine.parts + THREADS * HANDED;
    return mine;
}

// Sums of the elements of a thread become sums of rows, in a fixed order.
template <int N>
__device__ __forceinline__ void over_rows(const Lines& mine, const Compute (&sum)[N][VECTOR], Compute (*found)[CHANNELS]) {
    const int thread = (int)threadIdx.x, warp = thread / 32, elements = mine.packs * VECTOR, handed = mine.packs * HANDED;
    #pragma unroll
    for (int v = 0; v < N; ++v)
        #pragma unroll
        for (int first = 0; first < VECTOR; first += HANDED) {
            if (mine.lane < mine.lanes)
                #pragma unroll
                for (int e = 0; e < HANDED; ++e)
                    mine.parts[(mine.lane * HANDED + e) * mine.packs + mine.place] = sum[v][first + e];
            __syncthreads();
            for (int i = thread; i < handed; i += THREADS) {
                const int e = i / mine.packs, place = i - e * mine.packs;
                Compute total = (Compute)0;
                for (int lane = 0; lane < mine.lanes; ++lane) total += mine.parts[lane * handed + i];
                mine.totals[v * elements + place * VECTOR + first + e] = total;
            }
            __syncthreads();
        }
    for (int row = warp; row < N * CHANNELS; row += WARPS) {
        const Compute* const from = mine.totals + row / CHANNELS * elements + row % CHANNELS * mine.plane;
        Compute total = (Compute)0;
        for (int i = thread % 32; i < mine.plane; i += 32) total += from[i];
        #pragma unroll
        for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
        if (thread % 32 == 0) found[row / CHANNELS][row % CHANNELS] = total;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_planes(const __grid_constant__ Params p) {
    __shared__ Compute found[2][CHANNELS];  // sums of rows
    let_next_start();
    const Lines mine = lines_of(p);
    const int first_channel = (int)blockIdx.x * CHANNELS;
    int rows[VECTOR];  // of the block
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
        const int row = (mine.place * VECTOR + e) / mine.plane;
        rows[e] = row < mine.channels ? row : mine.channels - 1;
    }
    wait_for_launch_before();
    const auto known = [&](Row& row) {
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) {
            const int at[1] = {first_channel + rows[e]};
            Channel channel = {};
            of_channel(p, at, channel);
            learn_channel(channel, row, e);
        }
    };
    Row row;
    if constexpr (!SWEEPS) known(row);
    Compute sum[SUMS][VECTOR] = {};
    const Policy once = read_once();
    const auto take_some = [&](int n, auto count) {
        constexpr int many = decltype(count)::value;
        Stored some[many];
        #pragma unroll
        for (int i = 0; i < many; ++i) {
            const int at[2] = {(int)mine.first, n + i * mine.lanes};
            take(p, at, some[i], once);
        }
        #pragma unroll
        for (int i = 0; i < many; ++i) {
            mine.kept[(n + i * mine.lanes) * mine.packs + mine.place] = some[i];
            add(widened(some[i]), row, sum);
        }
    };
    if (mine.reads) {
        int n = mine.lane;
        for (; n + (AT_ONCE - 1) * mine.lanes < mine.images; n += AT_ONCE * mine.lanes) take_some(n, Number<AT_ONCE>());
        for (; n < mine.images; n += mine.lanes) take_some(n, Number<1>());
    }
    over_rows(mine, sum, found);
    if constexpr (SWEEPS) {
        Compute again[1][VECTOR] = {};
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) learn_first(p, found[0][rows[e]], row, e);
        mine.each([&](int, const Stored& pack) { add_again(widened(pack), row, again); });
        over_rows(mine, again, found + 1);
        known(row);
    }
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) learn(p, found[0][rows[e]], found[1][rows[e]], row, e);
    mine.each([&](int n, const Stored& pack) {
        const int at[2] = {(int)mine.first, n};
        epilogue(p, at, widened(pack), row);
    });
    if ((int)threadIdx.x < mine.channels) {
        const int at[1] = {first_channel + (int)threadIdx.x};
        store_row(p, at, found[0][threadIdx.x], found[1][threadIdx.x]);
    }
}
