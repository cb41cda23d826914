// moments computes mean and variance of rows that are divided among CTAs; finish_moments combines the CTAs' results.
//
// Each thread forms the mean and the squared deviations of a batch of vectors and combines them with its running values by
// the formula of Chan, Golub and LeVeque. Threads, then CTAs, combine by the deviations of their means from the common mean.
// All values are counted from the first element of the row: a mean far from zero costs no digits. If that element is far
// from the others, nothing cancels either.
//
// Tile:    COLUMNS rows (blockIdx.x) and p.per_split vectors of each (blockIdx.y).
// Memory:  x is read once in vectors of VECTOR elements. With SPLIT, partial moments go to the workspace as [split][row].
// Threads: LANES threads share a row.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; LANES: threads of a row, a power of two.
//   VECTOR: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; KEPT: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VECTOR adjacent rows.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization. SPLIT: 1 if several CTAs share a row.
//   FINISH: threads of a CTA of the second launch.

struct Moments {
    Compute elements, mean[ROW_WIDTH], squares[ROW_WIDTH];
};

// The first elements of a thread's rows, or 0 if they are not finite.
__device__ __forceinline__ void find_origin(const Params& p, int (&at)[RANK], Compute (&origin)[ROW_WIDTH]) {
    Elements first;
    locate_element(p, 0, at);
    take(p, at, first);
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        const Compute nothing = first.x[i] - first.x[i];
        origin[i] = nothing == (Compute)0 ? first.x[i] : (Compute)0;
    }
}

template <int N> __device__ __forceinline__ void count_from(const Compute (&origin)[ROW_WIDTH], Elements (&pack)[N]) {
    #pragma unroll
    for (int s = 0; s < N; ++s)
        #pragma unroll
        for (int e = 0; e < VECTOR; ++e) pack[s].x[e] -= origin[row_of(e)];
}

template <int N> __device__ __forceinline__ void join(Moments& mine, const Elements (&pack)[N]) {
    constexpr Compute more = (Compute)(N * (ALONG ? VECTOR : 1));
    if constexpr (CENTERED) {
        Compute mean[ROW_WIDTH] = {};
        add_up(pack, mean);
        const Compute elements = mine.elements + more, share = more / elements;
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            mean[i] *= (Compute)1 / more;
            const Compute apart = mean[i] - mine.mean[i];
            mine.mean[i] += apart * share;
            mine.squares[i] += apart * apart * (share * mine.elements);
        }
        #pragma unroll
        for (int s = 0; s < N; ++s)
            #pragma unroll
            for (int e = 0; e < VECTOR; ++e) {
                const Compute deviation = pack[s].x[e] - mean[row_of(e)];
                multiply_add(mine.squares[row_of(e)], deviation, deviation);
            }
        mine.elements = elements;
    } else {
        #pragma unroll
        for (int s = 0; s < N; ++s)
            #pragma unroll
            for (int e = 0; e < VECTOR; ++e) multiply_add(mine.squares[row_of(e)], pack[s].x[e], pack[s].x[e]);
    }
}

__device__ __forceinline__ Compute elements_of(const Params& p, Count split) {
    const Count begin = split * (Count)p.per_split, rest = (Count)p.count - begin;
    return (Compute)(rest < (Count)p.per_split ? rest : (Count)p.per_split) * (Compute)(ALONG ? VECTOR : 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) moments(const __grid_constant__ Params p) {
    const Place here = place_in(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    const Count begin = (Count)blockIdx.y * (Count)p.per_split;
    const Count limit = begin + (Count)p.per_split, end = limit < (Count)p.count ? limit : (Count)p.count;
    Compute origin[ROW_WIDTH];
    if constexpr (CENTERED) find_origin(p, at, origin);
    Moments mine = {};
    Count i = begin + here.lane;
    for (; i + (STEPS - 1) * LANES < end; i += STEPS * LANES) {
        Elements pack[STEPS];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, i + s * LANES, at);
            take(p, at, pack[s]);
        }
        if constexpr (CENTERED) count_from(origin, pack);
        join(mine, pack);
    }
    for (; i < end; i += LANES) {
        Elements pack[1];
        locate_element(p, i, at);
        take(p, at, pack[0]);
        if constexpr (CENTERED) count_from(origin, pack);
        join(mine, pack);
    }
    Compute mean[ROW_WIDTH];
    if constexpr (CENTERED) {
        const Compute all = elements_of(p, blockIdx.y);
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) mean[i] = mine.elements * mine.mean[i];
        over_row(mean, here, Sum());
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) {
            mean[i] /= all;
            const Compute apart = mine.mean[i] - mean[i];
            mine.squares[i] += mine.elements * apart * apart;
        }
    }
    over_row(mine.squares, here, Sum());
    if (!here.is_live || here.lane != 0) return;
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) {
        if constexpr (SPLIT) {
            const long long place = (long long)blockIdx.y * p.rows * ROW_WIDTH + (long long)here.row * ROW_WIDTH + i;
            if constexpr (CENTERED) p.partial_mean[place] = mean[i];
            p.partial_squares[place] = mine.squares[i];
        } else {
            const Compute variance = mine.squares[i] / (Compute)p.elements;
            const Compute whole = CENTERED ? origin[i] + mean[i] : (Compute)0;
            finish(p, at, i, whole, variance, inverse_deviation(variance, epsilon(p)));
        }
    }
}

__device__ __forceinline__ Compute over_block(Compute value) {
    __shared__ Compute shared[FINISH / 32];
    #pragma unroll
    for (int by = 1; by < 32; by *= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    #pragma unroll
    for (int i = 1; i < FINISH / 32; ++i) value += shared[i];
    __syncthreads();
    return value;
}

// One CTA for each row combines its partial moments and computes the statistics.
extern "C" __global__ void __launch_bounds__(FINISH, 1) finish_moments(const __grid_constant__ Params p) {
    const long long rows = p.rows * ROW_WIDTH, row = blockIdx.x;
    Compute mean = (Compute)0, squares = (Compute)0;
    if constexpr (CENTERED) {
        for (long long i = threadIdx.x; i < p.splits; i += FINISH)
            mean += elements_of(p, (Count)i) * p.partial_mean[i * rows + row];
        mean = over_block(mean) / (Compute)p.elements;
    }
    for (long long i = threadIdx.x; i < p.splits; i += FINISH) {
        squares += p.partial_squares[i * rows + row];
        if constexpr (CENTERED) {
            const Compute apart = p.partial_mean[i * rows + row] - mean;
            squares += elements_of(p, (Count)i) * apart * apart;
        }
    }
    squares = over_block(squares);
    if (threadIdx.x != 0) return;
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, (Count)(row / ROW_WIDTH), at);
    const Compute variance = squares / (Compute)p.elements;
    const int i = (int)(row % ROW_WIDTH);
    if constexpr (CENTERED) {
        Compute origin[ROW_WIDTH];
        find_origin(p, at, origin);
        #pragma unroll
        for (int e = 0; e < ROW_WIDTH; ++e)
            if (e == i) mean += origin[e];
    }
    finish(p, at, i, mean, variance, inverse_deviation(variance, epsilon(p)));
}
