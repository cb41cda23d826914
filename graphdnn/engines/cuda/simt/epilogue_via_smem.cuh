// Epilogue through shared memory, one row of each thread at a time: consecutive threads then store consecutive elements, and
// the text of the epilogue occurs once. emit(row, column, elements) gets VEC_WIDTH elements of one row. epilogue_smem has room
// for THREADS_M * TILE_N accumulators, and no thread reads its old contents any more.

#include "simt_tile_coord.cuh"

template <class Emit>
__device__ __forceinline__ void epilogue_via_smem(
    Accum* epilogue_smem, const ThreadCoord& thread, const Accum (&accum)[TM][TN], int rows_left, int columns_left, Emit emit
) {
    #pragma unroll 1
    for (int pass = 0; pass < TM; ++pass) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (i != pass) continue;
            #pragma unroll
            for (int j = 0; j < TN; ++j) epilogue_smem[thread.m * TILE_N + column_of(thread, j)] = accum[i][j];
        }
        __syncthreads();
        const int row_first = pass / GM * (TILE_M / (TM / GM)) + pass % GM;
        #pragma unroll 1
        for (int n = threadIdx.x; n < THREADS_M * (TILE_N / VEC_WIDTH); n += THREADS) {
            const int smem_row = n / (TILE_N / VEC_WIDTH), column = n % (TILE_N / VEC_WIDTH) * VEC_WIDTH;
            const int row = row_first + smem_row * GM;
            if (row >= rows_left || column >= columns_left) continue;
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = epilogue_smem[smem_row * TILE_N + column + e];
            emit(row, column, acc);
        }
        __syncthreads();
    }
}
