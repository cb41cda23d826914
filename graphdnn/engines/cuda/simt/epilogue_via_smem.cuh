// Results leave through shared memory, a row of each thread at a time: neighbouring threads then store neighbouring
// elements, and the text of the epilogue occurs once. emit(row, column, elements) gets WIDTH neighbours of one row.
// slab: THREADS_M * BN accumulators that nobody reads any more.
template <class Emit>
__device__ __forceinline__ void leave(
    Accum* slab, const Place& mine, const Accum (&sum)[TM][TN], int rows_left, int columns_left, Emit emit
) {
    #pragma unroll 1
    for (int pass = 0; pass < TM; ++pass) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (i != pass) continue;
            #pragma unroll
            for (int j = 0; j < TN; ++j) slab[mine.m * BN + column_of(mine, j)] = sum[i][j];
        }
        __syncthreads();
        const int row_first = pass / GM * (BM / (TM / GM)) + pass % GM;
        #pragma unroll 1
        for (int n = threadIdx.x; n < THREADS_M * (BN / WIDTH); n += THREADS) {
            const int slab_row = n / (BN / WIDTH), column = n % (BN / WIDTH) * WIDTH;
            const int row = row_first + slab_row * GM;
            if (row >= rows_left || column >= columns_left) continue;
            Accum acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = slab[slab_row * BN + column + e];
            emit(row, column, acc);
        }
        __syncthreads();
    }
}
