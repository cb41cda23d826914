// moments computes mean and variance of rows that are divided among CTAs; finish_moments combines the CTAs' results.
//
// Each thread forms the mean and the squared deviations of a batch of vectors and combines them with its running values by
// the formula of Chan, Golub and LeVeque. Threads, then CTAs, combine by the deviations of their means from the common mean.
// All values are counted from the first element of the row: a mean far from zero costs no digits. If that element is far
// from the others, nothing cancels either.
//
// Tile:    COLUMNS rows (blockIdx.x) and p.per_split vectors of each (blockIdx.y).
// Memory:  x is read once in vectors of VEC_WIDTH elements. With SPLIT, partial moments go to the workspace as [split][row].
// Threads: THREADS_PER_ROW threads share a row.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization. SPLIT: 1 if several CTAs share a row.
//   FINISH: threads of a CTA of the second launch.

struct Moments {
    Compute elements, mean[ROWS_PER_THREAD], squares[ROWS_PER_THREAD];
};

// The first elements of a thread's rows, or 0 if they are not finite.
__device__ __forceinline__ void load_origin(const Params& p, int (&at)[RANK], Compute (&origin)[ROWS_PER_THREAD]) {
    Elements first;
    locate_element(p, 0, at);
    load_elements(p, at, first);
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        const Compute zero = first.x[i] - first.x[i];
        origin[i] = zero == (Compute)0 ? first.x[i] : (Compute)0;
    }
}

template <int N> __device__ __forceinline__ void subtract_origin(const Compute (&origin)[ROWS_PER_THREAD], Elements (&vec)[N]) {
    #pragma unroll
    for (int s = 0; s < N; ++s)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) vec[s].x[e] -= origin[row_of(e)];
}

template <int N> __device__ __forceinline__ void add_vectors(Moments& running, const Elements (&vec)[N]) {
    constexpr Compute added = (Compute)(N * (ALONG ? VEC_WIDTH : 1));
    if constexpr (CENTERED) {
        Compute mean[ROWS_PER_THREAD] = {};
        add_to_rows(vec, mean);
        const Compute elements = running.elements + added, fraction = added / elements;
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            mean[i] *= (Compute)1 / added;
            const Compute delta = mean[i] - running.mean[i];
            running.mean[i] += delta * fraction;
            running.squares[i] += delta * delta * (fraction * running.elements);
        }
        #pragma unroll
        for (int s = 0; s < N; ++s)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                const Compute deviation = vec[s].x[e] - mean[row_of(e)];
                multiply_add(running.squares[row_of(e)], deviation, deviation);
            }
        running.elements = elements;
    } else {
        #pragma unroll
        for (int s = 0; s < N; ++s)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) multiply_add(running.squares[row_of(e)], vec[s].x[e], vec[s].x[e]);
    }
}

__device__ __forceinline__ Compute elements_of(const Params& p, Count split) {
    const Count begin = split * (Count)p.per_split, remaining = (Count)p.count - begin;
    return (Compute)(remaining < (Count)p.per_split ? remaining : (Count)p.per_split) * (Compute)(ALONG ? VEC_WIDTH : 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) moments(const __grid_constant__ Params p) {
    const ThreadSlot slot = thread_slot(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, slot.row, at);
    const Count begin = (Count)blockIdx.y * (Count)p.per_split;
    const Count limit = begin + (Count)p.per_split, end = limit < (Count)p.count ? limit : (Count)p.count;
    Compute origin[ROWS_PER_THREAD];
    if constexpr (CENTERED) load_origin(p, at, origin);
    Moments running = {};
    Count i = begin + slot.row_thread;
    for (; i + (STEPS - 1) * THREADS_PER_ROW < end; i += STEPS * THREADS_PER_ROW) {
        Elements vec[STEPS];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, i + s * THREADS_PER_ROW, at);
            load_elements(p, at, vec[s]);
        }
        if constexpr (CENTERED) subtract_origin(origin, vec);
        add_vectors(running, vec);
    }
    for (; i < end; i += THREADS_PER_ROW) {
        Elements vec[1];
        locate_element(p, i, at);
        load_elements(p, at, vec[0]);
        if constexpr (CENTERED) subtract_origin(origin, vec);
        add_vectors(running, vec);
    }
    Compute mean[ROWS_PER_THREAD];
    if constexpr (CENTERED) {
        const Compute split_elements = elements_of(p, blockIdx.y);
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) mean[i] = running.elements * running.mean[i];
        reduce_row(mean, slot, Sum());
        #pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; ++i) {
            mean[i] /= split_elements;
            const Compute delta = running.mean[i] - mean[i];
            running.squares[i] += running.elements * delta * delta;
        }
    }
    reduce_row(running.squares, slot, Sum());
    if (!slot.is_live || slot.row_thread != 0) return;
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) {
        if constexpr (SPLIT) {
            const long long index = (long long)blockIdx.y * p.rows * ROWS_PER_THREAD + (long long)slot.row * ROWS_PER_THREAD + i;
            if constexpr (CENTERED) p.partial_mean[index] = mean[i];
            p.partial_squares[index] = running.squares[i];
        } else {
            const Compute variance = running.squares[i] / (Compute)p.elements;
            const Compute full_mean = CENTERED ? origin[i] + mean[i] : (Compute)0;
            finish(p, at, i, full_mean, variance, inverse_deviation(variance, epsilon(p)));
        }
    }
}

__device__ __forceinline__ Compute reduce_cta(Compute value) {
    __shared__ Compute shared[FINISH / 32];
    #pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
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
    const long long rows = p.rows * ROWS_PER_THREAD, row = blockIdx.x;
    Compute mean = (Compute)0, squares = (Compute)0;
    if constexpr (CENTERED) {
        for (long long i = threadIdx.x; i < p.splits; i += FINISH)
            mean += elements_of(p, (Count)i) * p.partial_mean[i * rows + row];
        mean = reduce_cta(mean) / (Compute)p.elements;
    }
    for (long long i = threadIdx.x; i < p.splits; i += FINISH) {
        squares += p.partial_squares[i * rows + row];
        if constexpr (CENTERED) {
            const Compute delta = p.partial_mean[i * rows + row] - mean;
            squares += elements_of(p, (Count)i) * delta * delta;
        }
    }
    squares = reduce_cta(squares);
    if (threadIdx.x != 0) return;
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, (Count)(row / ROWS_PER_THREAD), at);
    const Compute variance = squares / (Compute)p.elements;
    const int i = (int)(row % ROWS_PER_THREAD);
    if constexpr (CENTERED) {
        Compute origin[ROWS_PER_THREAD];
        load_origin(p, at, origin);
        #pragma unroll
        for (int e = 0; e < ROWS_PER_THREAD; ++e)
            if (e == i) mean += origin[e];
    }
    finish(p, at, i, mean, variance, inverse_deviation(variance, epsilon(p)));
}
