// The packs of a thread: `first`, `first` + LANES, ... below `end`. The block has one at least.
struct Span {
    Count first, end;

    __device__ __forceinline__ Count pack(Count round) const { return first + round * LANES; }
    __device__ __forceinline__ bool has(Count round) const { return pack(round) < end; }
    __device__ __forceinline__ Count count() const { return end > first ? (end - first + LANES - 1) / LANES : 0; }
    // Where a thread has no pack it reads the block's last one, which nobody uses: no load waits for a condition.
    __device__ __forceinline__ Count some(Count round) const { return has(round) ? pack(round) : end - 1; }
};
