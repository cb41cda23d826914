// softmax reduces rows STAGES times (for instance maximum, then sum of exponentials) and writes the result. Each reduction
// follows pointwise operations that use the earlier results.
//
// Tile:    COLUMNS rows for a CTA.
// Memory:  HELD: rows stay in registers, SHARED: rows stay in shared memory; both read x once. Otherwise each reduction reads
//          x again. RUNS: the rows of a CTA are one contiguous run, which is staged in shared memory (softmax_runs.cuh).
// Threads: THREADS_PER_ROW threads share a row; all of them know each reduced value.
//
// The generated text defines Stage<S> (elements, operator and result of reduction S), Held (the values of a vector that a
// thread carries from one reduction to the next), RowValues (the reduced values of a row) and finish.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   EXACT: 1 if THREADS_PER_ROW * STEPS vectors are a whole row, so that no bound is checked.
//   STAGES: reductions, 1 or 2. HELD, SHARED, RUNS: flags, see above.
//   LOADS_IN_FLIGHT: vectors of a thread whose loads are in flight together, 1 or more.

#include "pdl.cuh"

// The values of an element that a thread keeps, besides its registers.
__device__ __forceinline__ Held& kept_of(Count vec, Held& passed) {
    if constexpr (SHARED) return ((Held*)smem_vecs)[vec];
    else return passed;
}

static_assert(LOADS_IN_FLIGHT > 0, "vectors of a thread in flight");

// Visits every vector of a thread. LOADS_IN_FLIGHT vectors are loaded without a check of the row's end in between, so that the
// loads overlap.
template <class Each> __device__ __forceinline__ void over_vecs(const Params& p, const ThreadSlot& slot, Each each) {
    const Count count = (Count)p.count;
    Count vec = slot.row_thread;
    for (; vec + (LOADS_IN_FLIGHT - 1) * THREADS_PER_ROW < count; vec += LOADS_IN_FLIGHT * THREADS_PER_ROW) {
        #pragma unroll
        for (int i = 0; i < LOADS_IN_FLIGHT; ++i) each(vec + i * THREADS_PER_ROW);
    }
    for (; vec < count; vec += THREADS_PER_ROW) each(vec);
}

template <int S> __device__ __forceinline__ void reduce_rows(
    const Params& p, const ThreadSlot& slot, int (&at)[RANK], Held (&held)[HELD ? STEPS : 1], RowValues& row) {
    typedef typename Stage<S>::Value Value;
    const typename Stage<S>::Combine combine;
    Value total[ROWS_PER_THREAD];
    #pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; ++i) total[i] = Stage<S>::identity();
    if constexpr (HELD) {
        Value value[STEPS][VEC_WIDTH];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count vec = (Count)(slot.row_thread + s * THREADS_PER_ROW);
            if (EXACT || vec < (Count)p.count) {
                locate_element(p, vec, at);
                Stage<S>::element(p, at, held[s], row, value[s]);
            } else {
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) value[s][e] = Stage<S>::identity();
            }
        }
        #pragma unroll
        for (int s = 0; s < STEPS; ++s)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) total[row_of(e)] = combine(total[row_of(e)], value[s][e]);
    } else {
        over_vecs(p, slot, [&](Count vec) {
            Value value[VEC_WIDTH];
            locate_element(p, vec, at);
            Stage<S>::element(p, at, kept_of(vec, held[0]), row, value);
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) total[row_of(e)] = combine(total[row_of(e)], value[e]);
        });
    }
    reduce_row(total, slot, combine);
    Stage<S>::conclude(p, at, total, row, slot.is_live && slot.row_thread == 0);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) softmax(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const ThreadSlot slot = thread_slot(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, slot.row, at);
    Held held[HELD ? STEPS : 1];
    RowValues row;
    if constexpr (RUNS) {
        bring_runs(p);
        __syncthreads();
    }
    reduce_rows<0>(p, slot, at, held, row);
    if constexpr (STAGES > 1) reduce_rows<1>(p, slot, at, held, row);
    if (!RUNS && !slot.is_live) return;
    if constexpr (HELD) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count vec = (Count)(slot.row_thread + s * THREADS_PER_ROW);
            if ((!RUNS || slot.is_live) && (EXACT || vec < (Count)p.count)) {
                locate_element(p, vec, at);
                finish(p, at, held[s], row);
            }
        }
        if constexpr (RUNS) {
            __syncthreads();
            send_runs(p);
        }
    } else {
        over_vecs(p, slot, [&](Count vec) {
            locate_element(p, vec, at);
            finish(p, at, kept_of(vec, held[0]), row);
        });
    }
}
