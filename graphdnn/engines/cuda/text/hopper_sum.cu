// Adds the parts of a split product in their order, each thread what it would have held, and runs the epilogue.
extern "C" __global__ void __launch_bounds__(128) hopper_sum(const __grid_constant__ Params p) {
    int rest = blockIdx.x;
    const int block = rest % (BN / 32);
    rest /= BN / 32;
    const int j = rest % MI;
    rest /= MI;
    const int consumer = rest % CONSUMERS;
    const Work w = work_of(p, rest / CONSUMERS);
    wait_for_launch_before();
    Accumulator sum[16];
    #pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] = 0;
    #pragma unroll 2
    for (int part = 0; part < (int)p.parts; ++part) {
        const Accumulator* const from = p.partial + partial_at(p, part, w.tile, consumer, j, block);
        #pragma unroll
        for (int quarter = 0; quarter < 4; ++quarter) {
            const Pack<Accumulator, 4> pack = load_pack<4>(from + quarter * 512);
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[4 * quarter + e] = wrapping_sum(sum[4 * quarter + e], pack.at[e]);
        }
    }
    Rows rows = rows_of(p, w, consumer, j);
    leave(p, w, rows, block, sum);
}
