// Softmax: rows reduced again and again (STAGES times), each time after pointwise operations that know the results so
// far, and at last written. The generated Stage<S> says what a stage computes and reduces; Held is what a thread keeps
// of a pack from stage to stage, RowValues what is known of a row.
//
// HELD: the rows are in registers, one read and one write. Otherwise every stage reads them again.

template <int S> __device__ __forceinline__ void reduce_rows(
    const Params& p, const Place& here, int (&at)[RANK], Held (&held)[HELD ? STEPS : 1], RowValues& row) {
    typedef typename Stage<S>::Value Value;
    const typename Stage<S>::Combine combine;
    Value total[ROW_WIDTH];
    #pragma unroll
    for (int i = 0; i < ROW_WIDTH; ++i) total[i] = Stage<S>::identity();
    if constexpr (HELD) {
        Value value[STEPS][VECTOR];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count pack = (Count)(here.lane + s * LANES);
            if (EXACT || pack < (Count)p.count) {
                locate_element(p, pack, at);
                Stage<S>::element(p, at, held[s], row, value[s]);
            } else {
                #pragma unroll
                for (int e = 0; e < VECTOR; ++e) value[s][e] = Stage<S>::identity();
            }
        }
        #pragma unroll
        for (int s = 0; s < STEPS; ++s)
            #pragma unroll
            for (int e = 0; e < VECTOR; ++e) total[row_of(e)] = combine(total[row_of(e)], value[s][e]);
    } else {
        #pragma unroll 4
        for (Count pack = here.lane; pack < (Count)p.count; pack += LANES) {
            Value value[VECTOR];
            locate_element(p, pack, at);
            Stage<S>::element(p, at, held[0], row, value);
            #pragma unroll
            for (int e = 0; e < VECTOR; ++e) total[row_of(e)] = combine(total[row_of(e)], value[e]);
        }
    }
    over_row(total, here, combine);
    Stage<S>::conclude(p, at, total, row, here.is_live && here.lane == 0);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) softmax(const __grid_constant__ Params p) {
    let_next_start();
    wait_for_launch_before();
    const Place here = place_in(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    Held held[HELD ? STEPS : 1];
    RowValues row;
    reduce_rows<0>(p, here, at, held, row);
    if constexpr (STAGES > 1) reduce_rows<1>(p, here, at, held, row);
    if (!here.is_live) return;
    if constexpr (HELD) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count pack = (Count)(here.lane + s * LANES);
            if (EXACT || pack < (Count)p.count) {
                locate_element(p, pack, at);
                finish(p, at, held[s], row);
            }
        }
    } else {
        for (Count pack = here.lane; pack < (Count)p.count; pack += LANES) {
            locate_element(p, pack, at);
            finish(p, at, held[0], row);
        }
    }
}
