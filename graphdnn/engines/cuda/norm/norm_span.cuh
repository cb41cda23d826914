// The packs of a thread: `first`, `first` + `apart`, ... below `end`. Blocks that share rows take turns, LANES packs each,
// so that they go through memory side by side.
struct Span {
    Count first, apart, end;

    __device__ __forceinline__ Count pack(Count round) const { return first + round * apart; }
    __device__ __forceinline__ bool has(Count round) const { return pack(round) < end; }
    __device__ __forceinline__ Count count() const { return end > first ? (end - first + apart - 1) / apart : 0; }
    // Where a thread has no pack it reads the row's last one, which nobody uses: no load waits for a condition.
    __device__ __forceinline__ Count some(Count round) const { return has(round) ? pack(round) : end - 1; }
};

__device__ __forceinline__ Span span_of(const Params& p, Count split, Count splits, int lane) {
    return {split * LANES + lane, splits * LANES, (Count)p.count};
}

// Asks for the first packs of the rows that come next, while nothing else is on its way.
__device__ __forceinline__ void fetch_next(const Params& p, Count tile, const Span& mine) {
    const Place next = place_in(p, tile + gridDim.x);
    if ((ALONG ? next.lane : next.column) % OF_LINE != 0 || !next.is_live) return;
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, next.row, at);
    #pragma unroll 1
    for (Count round = 0; round < (Count)p.ahead && mine.has(round); ++round) {
        locate_element(p, mine.pack(round), at);
        fetch(p, at);
    }
}
