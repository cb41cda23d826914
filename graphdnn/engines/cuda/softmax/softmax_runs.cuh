// Rows that packs do not fit: those of a block are a run of memory, which shared memory holds as it lies, and results as
// they will lie. The generated functions know where each tensor's run begins, and bring and send all of them.

// An element's place in its block's run.
__device__ __forceinline__ int place_of(const Params& p, const int (&at)[RANK]) {
    return (at[0] - (int)blockIdx.x * COLUMNS) * (int)p.elements + at[1];
}

template <class T> __device__ __forceinline__ T* run_of(int bytes) { return (T*)((unsigned char*)shared_packs + bytes); }

__device__ __forceinline__ int run_elements(const Params& p) {
    const long long rows = p.rows - (long long)blockIdx.x * COLUMNS;
    return (int)(rows < COLUMNS ? rows : COLUMNS) * (int)p.elements;
}

// A run from one kind of memory to the other, in packs as far as they go.
template <class T> __device__ __forceinline__ void move_run(const T* from, T* to, int elements) {
    constexpr int PACK = 16 / (int)sizeof(T), BATCH = 4;
    const int packs = elements / PACK;
    for (int first = threadIdx.x; first < packs; first += THREADS * BATCH) {
        Vec<T, PACK> held[BATCH];
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (first + k * THREADS < packs) held[k] = load_vec<PACK>(from + (first + k * THREADS) * PACK);
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (first + k * THREADS < packs) store_vec<PACK>(to + (first + k * THREADS) * PACK, held[k]);
    }
    for (int i = packs * PACK + threadIdx.x; i < elements; i += THREADS) to[i] = from[i];
}
