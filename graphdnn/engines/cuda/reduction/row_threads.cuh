// Rows are sets of elements that are normalized together. This file assigns them to threads.
//
// If ALONG, contiguous elements belong to one row, and LANES adjacent threads share it, with VECTOR elements in each access.
// Otherwise contiguous elements belong to adjacent rows: each thread has VECTOR rows, COLUMNS threads are adjacent, and LANES
// threads split a row. THREADS = LANES * COLUMNS; both are powers of two, and a CTA has at least one warp.
//
// Coordinates: KEPT axes that count rows, then the axes along a row. If ALONG, the elements of a row are counted in vectors;
// otherwise the rows are.

#include "fast_division.cuh"

constexpr int ROW_WIDTH = ALONG ? 1 : VECTOR;  // rows of a thread

__device__ __forceinline__ int row_of(int e) { return ALONG ? 0 : e; }

struct ThreadSlot {
    int lane, column;
    Count row;  // in vectors; an existing row
    bool is_live;  // whether the row is this thread's own
};

// Coordinates `first` to `last` - 1, from an index of vectors along axis `last` - 1.
template <int FIRST, int LAST, int PACK> __device__ __forceinline__ void locate(const Params& p, Count rem, int (&at)[RANK]) {
    #pragma unroll
    for (int j = LAST - 1; j > FIRST; --j) {
        const Count size = (Count)(j == LAST - 1 ? p.size[j] / PACK : p.size[j]);
        const Count outer = quotient(rem, (long long)size, p.magic[j]);
        at[j] = (int)(rem - outer * size);
        rem = outer;
    }
    at[FIRST] = (int)rem;
    at[LAST - 1] *= PACK;
}

__device__ __forceinline__ void locate_row(const Params& p, Count row, int (&at)[RANK]) {
    locate<0, KEPT, ROW_WIDTH>(p, row, at);
}

__device__ __forceinline__ void locate_element(const Params& p, Count pack, int (&at)[RANK]) {
    locate<KEPT, RANK, ALONG ? VECTOR : 1>(p, pack, at);
}

__device__ __forceinline__ ThreadSlot thread_slot(const Params& p, Count block) {
    const int thread = (int)threadIdx.x;
    ThreadSlot slot;
    slot.lane = ALONG ? thread % LANES : thread / COLUMNS;
    slot.column = ALONG ? thread / LANES : thread % COLUMNS;
    const Count row = block * COLUMNS + slot.column;
    slot.is_live = row < (Count)p.rows;
    slot.row = slot.is_live ? row : (Count)p.rows - 1;  // surplus threads repeat the last row, and store nothing
    return slot;
}

struct Sum {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return wrapping_sum(a, b); }
};

struct Largest {  // NaN propagates
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return a > b || a != a ? a : b; }
#ifdef __CUDA_ARCH__
    __device__ __forceinline__ float operator()(float a, float b) const {
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
        return a;
    }
#endif
};

// Reduces the values of the threads that share a row, in a fixed order. Each of them gets the result; every thread calls it.
template <class T, class Combine>
__device__ __forceinline__ void reduce_row(T (&value)[ROW_WIDTH], const ThreadSlot& slot, Combine combine) {
    constexpr int warp_lanes = ALONG ? (LANES < 32 ? LANES : 32) : COLUMNS < 32 ? 32 / COLUMNS : 1;  // lanes of a row
    constexpr int lane_stride = ALONG ? 1 : COLUMNS;
    #pragma unroll
    for (int distance = 1; distance < warp_lanes; distance *= 2)
        #pragma unroll
        for (int e = 0; e < ROW_WIDTH; ++e)
            value[e] = combine(value[e], __shfl_xor_sync(0xffffffffu, value[e], distance * lane_stride));
    constexpr int warps = LANES / warp_lanes;
    if constexpr (warps > 1) {
        __shared__ Vec<T, ROW_WIDTH> shared[warps][COLUMNS];
        if (slot.lane % warp_lanes == 0)
            #pragma unroll
            for (int e = 0; e < ROW_WIDTH; ++e) shared[slot.lane / warp_lanes][slot.column].data[e] = value[e];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < warps; ++i) {
            const Vec<T, ROW_WIDTH> part = shared[i][slot.column];
            #pragma unroll
            for (int e = 0; e < ROW_WIDTH; ++e) value[e] = i == 0 ? part.data[e] : combine(value[e], part.data[e]);
        }
        __syncthreads();
    }
}
