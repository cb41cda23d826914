// Combines the sums of the CTAs of a cluster.

// Replaces the two sums of each row by the sums over all CTAs.
__device__ __forceinline__ void over_parts(const Params& p, int part, Compute* inbox, Compute (*found)[CHANNELS]) {
    constexpr int COUNT = 2 * CHANNELS, SENT = COUNT * PARTS;
    await_cluster();  // from here on the other CTAs' shared memory may be written
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < SENT; i += THREADS) {
        const int number = i / PARTS;
        send(inbox + part * COUNT + number, i % PARTS, found[number / CHANNELS][number % CHANNELS]);
    }
    if ((int)threadIdx.x / 32 * 32 < SENT) arrive_in_cluster();
    else greet_cluster();
    await_cluster();
    #pragma unroll 1
    for (int row = (int)threadIdx.x; row < CHANNELS; row += THREADS) {
        Compute first = (Compute)0, second = (Compute)0;
        #pragma unroll
        for (int other = 0; other < PARTS; ++other) first += inbox[other * COUNT + row];
        #pragma unroll 1
        for (int other = 0; other < PARTS; ++other)
            second += joined(p, other, inbox[other * COUNT + row], inbox[other * COUNT + CHANNELS + row], first);
        found[0][row] = first, found[1][row] = second;
    }
    __syncthreads();
}
