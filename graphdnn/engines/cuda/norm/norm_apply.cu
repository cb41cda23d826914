// The last pass over rows of which everything is known. Blocks start at the end: what the pass before read last may
// still be in the cache.
extern "C" __global__ void __launch_bounds__(THREADS) norm_apply(const __grid_constant__ Params p) {
    const Place here = place_in(p, blockIdx.x);
    if (!here.is_live) return;
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    Row row;
    of_row(p, at, row);
    const Count begin = (Count)(gridDim.y - 1 - blockIdx.y) * (Count)p.per_split;
    const Count limit = begin + (Count)p.per_split, end = limit < (Count)p.count ? limit : (Count)p.count;
    Count i = begin + here.lane;
    for (; i + (STEPS - 1) * LANES < end; i += STEPS * LANES) {
        Elements pack[STEPS];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, i + s * LANES, at);
            take(p, at, pack[s]);
        }
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, i + s * LANES, at);
            epilogue(p, at, pack[s], row);
        }
    }
    for (; i < end; i += LANES) {
        Elements pack;
        locate_element(p, i, at);
        take(p, at, pack);
        epilogue(p, at, pack, row);
    }
}
