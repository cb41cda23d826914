// Adds the parts of a split product in their order, each thread what it would have held, and runs the epilogue.
//
// SLICES times 128 threads each add some of the parts, those that follow each other; the first 128 add the slices.
extern "C" __global__ void __launch_bounds__(128 * SLICES, 1) hopper_sum(const __grid_constant__ Params p) {
    __shared__ Accumulator kept[SLICES > 1 ? SLICES - 1 : 1][16][128];
    int rest = blockIdx.x;
    const int block = rest % (BN / 32);
    rest /= BN / 32;
    const int j = rest % MI;
    rest /= MI;
    const int consumer = rest % CONSUMERS;
    const Work w = work_of(p, rest / CONSUMERS);
    const int slice = (int)threadIdx.x / 128, parts = (int)p.parts;
    const int first = slice * parts / SLICES, last = (slice + 1) * parts / SLICES;
    wait_for_launch_before();
    Accumulator sum[16];
    #pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] = 0;
    #pragma unroll 4
    for (int part = first; part < last; ++part) {
        const Accumulator* const from = p.partial + partial_at(p, part, w.tile, consumer, j, block);
        #pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            const Pack<Accumulator, 4> pack = load_pack<4>(from + quarter * 512);
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[4 * quarter + e] = wrapping_sum(sum[4 * quarter + e], pack.at[e]);
        }
    }
    if (slice > 0) {
        #pragma unroll
        for (int i = 0; i < 16; ++i) kept[slice - 1][i][threadIdx.x % 128] = sum[i];
    }
    __syncthreads();
    if (slice > 0) return;
    #pragma unroll
    for (int other = 0; other < SLICES - 1; ++other)
        #pragma unroll
        for (int i = 0; i < 16; ++i) sum[i] = wrapping_sum(sum[i], kept[other][i][threadIdx.x]);
    leave_all<1>(p, w, rows_of(p, w, consumer, j), block, sum);
}
