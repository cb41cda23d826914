// Loads and stores of rows that the threads of a CTA hold in registers.

__device__ __forceinline__ void load_row_vectors(
    const Params& p, const ThreadSlot& slot, int (&at)[RANK], Elements (&vec)[STEPS]
) {
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, slot.row, at);
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        vec[s] = {};
        const Count i = (Count)(slot.row_thread + s * THREADS_PER_ROW);
        if (EXACT || i < (Count)p.count) {
            locate_element(p, i, at);
            load_elements(p, at, vec[s]);
        }
    }
}

__device__ __forceinline__ void store_row_vectors(
    const Params& p, const ThreadSlot& slot, int (&at)[RANK], const Elements (&vec)[STEPS], const Row& row
) {
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const Count i = (Count)(slot.row_thread + s * THREADS_PER_ROW);
        if (EXACT || i < (Count)p.count) {
            locate_element(p, i, at);
            epilogue(p, at, vec[s], row);
        }
    }
}
