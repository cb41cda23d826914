// Gradient of a normalization whose rows the threads of a block hold in registers: x and dy are read once.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_backward_rows(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const Place here = place_in(p, blockIdx.x);
    int at[RANK];
    Elements pack[STEPS];
    take_row(p, here, at, pack);
    Row row;
    of_row(p, at, row);
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) row.sum[i] = row.dot[i] = (Compute)0;
    #pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (EXACT || (Count)(here.lane + s * LANES) < (Count)p.count)
            #pragma unroll
            for (int e = 0; e < VECTOR; ++e) {
                row.sum[row_of(e)] += pack[s].g[e];
                multiply_add(row.dot[row_of(e)], pack[s].g[e], normalized(pack[s], row, e));
            }
    over_row(row.sum, here, Sum());
    over_row(row.dot, here, Sum());
    if (!here.is_live) return;
    if (here.lane == 0)
        #pragma unroll
        for (int i = 0; i < ROW_WIDTH; ++i) finish(p, at, i, row.sum[i], row.dot[i]);
    average(p, row);
    give_row(p, here, at, pack, row);
}
