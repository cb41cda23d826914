// Combines the sums of the CTAs of a cluster.

#include "channel_planes.cuh"

// Replaces the two sums of each row by the sums over all CTAs.
__device__ __forceinline__ void reduce_slices(const Params& p, int part, Compute* dsmem_buffer, Compute (*row_sums)[CHANNELS]) {
    constexpr int COUNT = 2 * CHANNELS, SENT = COUNT * PARTS;
    cluster_wait();  // from here on the other CTAs' shared memory may be written
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < SENT; i += THREADS) {
        const int number = i / PARTS;
        dsmem_store(dsmem_buffer + part * COUNT + number, i % PARTS, row_sums[number / CHANNELS][number % CHANNELS]);
    }
    if ((int)threadIdx.x / 32 * 32 < SENT) cluster_arrive();
    else cluster_arrive_relaxed();
    cluster_wait();
    #pragma unroll 1
    for (int row = (int)threadIdx.x; row < CHANNELS; row += THREADS) {
        Compute first = (Compute)0, second = (Compute)0;
        #pragma unroll
        for (int other = 0; other < PARTS; ++other) first += dsmem_buffer[other * COUNT + row];
        #pragma unroll 1
        for (int other = 0; other < PARTS; ++other)
            second += centered_sum(
                p, other, dsmem_buffer[other * COUNT + row], dsmem_buffer[other * COUNT + CHANNELS + row], first
            );
        row_sums[0][row] = first, row_sums[1][row] = second;
    }
    __syncthreads();
}
