// Rows whose lengths are no multiples of a vector. The rows of a CTA are one contiguous run in memory. Shared memory has the
// run of each input and of each output, and the generated functions copy all runs.

// The index of an element in the run of its CTA.
__device__ __forceinline__ int place_of(const Params& p, const int (&at)[RANK]) {
    return (at[0] - (int)blockIdx.x * COLUMNS) * (int)p.elements + at[1];
}

template <class T> __device__ __forceinline__ T* run_of(int bytes) { return (T*)((unsigned char*)smem_vecs + bytes); }

__device__ __forceinline__ int run_elements(const Params& p) {
    const long long rows = p.rows - (long long)blockIdx.x * COLUMNS;
    return (int)(rows < COLUMNS ? rows : COLUMNS) * (int)p.elements;
}

// Copies a run between global and shared memory, in vectors as far as possible.
template <class T> __device__ __forceinline__ void move_run(const T* from, T* to, int elements) {
    constexpr int COPY_ELEMS = 16 / (int)sizeof(T), BATCH = 4;
    const int vecs = elements / COPY_ELEMS;
    for (int first = threadIdx.x; first < vecs; first += THREADS * BATCH) {
        Vec<T, COPY_ELEMS> held[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (first + k * THREADS < vecs) held[k] = load_vec<COPY_ELEMS>(from + (first + k * THREADS) * COPY_ELEMS);
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (first + k * THREADS < vecs) store_vec<COPY_ELEMS>(to + (first + k * THREADS) * COPY_ELEMS, held[k]);
    }
    for (int i = vecs * COPY_ELEMS + threadIdx.x; i < elements; i += THREADS) to[i] = from[i];
}
