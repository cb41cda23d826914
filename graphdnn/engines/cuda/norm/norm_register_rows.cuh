// Loads and stores of rows that the threads of a CTA hold in registers.

__device__ __forceinline__ void take_row(const Params& p, const Place& here, int (&at)[RANK], Elements (&pack)[STEPS]) {
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        pack[s] = {};
        const Count i = (Count)(here.lane + s * LANES);
        if (EXACT || i < (Count)p.count) {
            locate_element(p, i, at);
            take(p, at, pack[s]);
        }
    }
}

__device__ __forceinline__ void give_row(
    const Params& p, const Place& here, int (&at)[RANK], const Elements (&pack)[STEPS], const Row& row
) {
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const Count i = (Count)(here.lane + s * LANES);
        if (EXACT || i < (Count)p.count) {
            locate_element(p, i, at);
            epilogue(p, at, pack[s], row);
        }
    }
}
