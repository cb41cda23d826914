// The vectors of a thread: `first`, `first` + `stride`, ... below `end`. CTAs that share rows alternate in turns of
// THREADS_PER_ROW vectors, so that the CTAs read adjacent memory at the same time.
struct Span {
    Count first, stride, end;

    __device__ __forceinline__ Count vec(Count round) const { return first + round * stride; }
    __device__ __forceinline__ bool has(Count round) const { return vec(round) < end; }
    __device__ __forceinline__ Count count() const { return end > first ? (end - first + stride - 1) / stride : 0; }
    // A thread beyond its end reads the last vector of the row, and the value is unused: so no load depends on a condition.
    __device__ __forceinline__ Count clamped(Count round) const { return has(round) ? vec(round) : end - 1; }
};

__device__ __forceinline__ Span span_of(const Params& p, Count split, Count splits, int row_thread) {
    return {split * THREADS_PER_ROW + row_thread, splits * THREADS_PER_ROW, (Count)p.count};
}

// Prefetches the first vectors of the next rows, while no other load is in flight.
__device__ __forceinline__ void prefetch_next(const Params& p, Count tile, const Span& span) {
    const ThreadSlot next = thread_slot(p, tile + gridDim.x);
    if ((ALONG ? next.row_thread : next.column) % OF_LINE != 0 || !next.is_live) return;
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, next.row, at);
    #pragma unroll 1
    for (Count round = 0; round < (Count)p.ahead && span.has(round); ++round) {
        locate_element(p, span.vec(round), at);
        fetch(p, at);
    }
}
