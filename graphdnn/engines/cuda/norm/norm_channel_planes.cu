// Lines stay in shared memory: one read and one write. Where they are too many for that, a cluster of blocks divides them.

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, BLOCKS) norm_channel_planes(const __grid_constant__ Params p) {
    __shared__ Compute found[2][CHANNELS];  // sums of rows
    pdl_trigger();
    const Lines mine = lines_of(p, (int)blockIdx.x);
    greet_parts();
    pdl_wait();
    int rows[VECTOR];
    Row row;
    find_sums(p, mine, rows, read_once(), row, found);
    over_parts(p, mine.part, mine.inbox, found);
    if constexpr (OF_PLACES) leave_places(p, mine);
    conclude(p, mine, rows, row, found);
    mine.each([&](int n, const Stored& pack) {
        int at[RANK];
        mine.locate_line(n, at);
        epilogue(p, at, widened(pack), row);
    });
}
