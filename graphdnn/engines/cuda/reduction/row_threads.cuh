// Rows are sets of elements that are normalized together. This file assigns them to threads.
//
// If ALONG, contiguous elements belong to one row, and THREADS_PER_ROW adjacent threads share it, with VEC_WIDTH elements in
// each access. Otherwise contiguous elements belong to adjacent rows: each thread has VEC_WIDTH rows, COLUMNS threads are
// adjacent, and THREADS_PER_ROW threads split a row. A CTA has at least one warp.
//
// Coordinates: ROW_AXES axes that count rows, then the axes along a row. If ALONG, the elements of a row are counted in vectors;
// otherwise the rows are counted in vectors.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, THREADS_PER_ROW * COLUMNS; THREADS_PER_ROW, COLUMNS: see above, powers of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; ALONG: flag, see above.
//   RANK: axes of the index space; ROW_AXES: see above, 1 to RANK - 1.

#include "fast_division.cuh"

constexpr int ROWS_PER_THREAD = ALONG ? 1 : VEC_WIDTH;  // rows of a thread

__device__ __forceinline__ int row_of(int e) { return ALONG ? 0 : e; }

struct ThreadSlot {
    int row_thread, column;  // position among the threads of a row, and among the rows of a CTA
    Count row;  // in vectors; an existing row
    bool is_live;  // whether the row is this thread's own
};

// Coordinates FIRST to LAST - 1, from an index of vectors of VEC elements along axis LAST - 1.
template <int FIRST, int LAST, int VEC> __device__ __forceinline__ void locate(const Params& p, Count rem, int (&at)[RANK]) {
    #pragma unroll
    for (int j = LAST - 1; j > FIRST; --j) {
        const Count size = (Count)(j == LAST - 1 ? p.size[j] / VEC : p.size[j]);
        const Count outer = quotient(rem, (long long)size, p.magic[j]);
        at[j] = (int)(rem - outer * size);
        rem = outer;
    }
    at[FIRST] = (int)rem;
    at[LAST - 1] *= VEC;
}

__device__ __forceinline__ void locate_row(const Params& p, Count row, int (&at)[RANK]) {
    locate<0, ROW_AXES, ROWS_PER_THREAD>(p, row, at);
}

__device__ __forceinline__ void locate_element(const Params& p, Count vec, int (&at)[RANK]) {
    locate<ROW_AXES, RANK, ALONG ? VEC_WIDTH : 1>(p, vec, at);
}

__device__ __forceinline__ ThreadSlot thread_slot(const Params& p, Count block) {
    const int thread = (int)threadIdx.x;
    ThreadSlot slot;
    slot.row_thread = ALONG ? thread % THREADS_PER_ROW : thread / COLUMNS;
    slot.column = ALONG ? thread / THREADS_PER_ROW : thread % COLUMNS;
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
__device__ __forceinline__ void reduce_row(T (&value)[ROWS_PER_THREAD], const ThreadSlot& slot, Combine combine) {
    // Lanes of a warp that share a row
    constexpr int warp_lanes = ALONG ? (THREADS_PER_ROW < 32 ? THREADS_PER_ROW : 32) : COLUMNS < 32 ? 32 / COLUMNS : 1;
    constexpr int lane_stride = ALONG ? 1 : COLUMNS;
    #pragma unroll
    for (int distance = 1; distance < warp_lanes; distance *= 2)
        #pragma unroll
        for (int e = 0; e < ROWS_PER_THREAD; ++e)
            value[e] = combine(value[e], __shfl_xor_sync(0xffffffffu, value[e], distance * lane_stride));
    constexpr int warps = THREADS_PER_ROW / warp_lanes;
    if constexpr (warps > 1) {
        __shared__ Vec<T, ROWS_PER_THREAD> shared[warps][COLUMNS];
        if (slot.row_thread % warp_lanes == 0)
            #pragma unroll
            for (int e = 0; e < ROWS_PER_THREAD; ++e) shared[slot.row_thread / warp_lanes][slot.column].data[e] = value[e];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < warps; ++i) {
            const Vec<T, ROWS_PER_THREAD> part = shared[i][slot.column];
            #pragma unroll
            for (int e = 0; e < ROWS_PER_THREAD; ++e) value[e] = i == 0 ? part.data[e] : combine(value[e], part.data[e]);
        }
        __syncthreads();
    }
}
