// pointwise computes a graph of pointwise operations over one index space.
//
// Tile:    VEC_WIDTH adjacent elements of the last axis for a thread. TWO_VECS: two such vectors at a time, for more
//          loads in flight.
// Memory:  vector accesses along the last axis. CROSSES_ROWS: a vector counts elements of the whole space and may cross the end
//          of the last axis. REVERSED: the grid starts at the end, which L2 may still hold after a kernel that read the same
//          elements.
// Threads: threads are independent; the grid strides over all vectors.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   RANK: axes of the index space, 1 or more; VEC_WIDTH: elements of a vector, 1 or more.
//   TWO_VECS, CROSSES_ROWS, REVERSED: flags, see above.

#include "pdl.cuh"

__device__ __forceinline__ void decode_coord(const Params& p, Count i, int (&coord)[RANK]) {
    if constexpr (CROSSES_ROWS) i *= VEC_WIDTH;
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count size = (Count)(j == RANK - 1 && !CROSSES_ROWS ? p.size[j] / VEC_WIDTH : p.size[j]);
        const Count outer = i / size;
        coord[j] = (int)(i - outer * size);
        i = outer;
    }
    coord[0] = (int)i;
    if constexpr (!CROSSES_ROWS) coord[RANK - 1] *= VEC_WIDTH;
}

// From the end, where a kernel before read the same elements: what it read last may still be in the cache.
__device__ __forceinline__ Count traversal_index(Count i, Count count) { return REVERSED ? count - 1 - i : i; }

extern "C" __global__ void __launch_bounds__(THREADS, 2) pointwise(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    const Count count = (Count)p.count, stride = (Count)gridDim.x * THREADS;
    Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    int coord[RANK];
    ColumnOperands column_operands;  // of operands along the last axis, where a thread's packs are whole rows apart; else nothing
    decode_coord(p, traversal_index(i, count), coord);
    load_column_operands(p, coord, column_operands);
    if constexpr (TWO_VECS) {
        for (; i + stride < count; i += 2 * stride) {
            int next_coord[RANK];
            const Count one = traversal_index(i, count), other = traversal_index(i + stride, count);
            decode_coord(p, one, coord);
            decode_coord(p, other, next_coord);
            pointwise_vec(p, coord, (long long)one * VEC_WIDTH, column_operands);
            pointwise_vec(p, next_coord, (long long)other * VEC_WIDTH, column_operands);
        }
    }
    for (; i < count; i += stride) {
        const Count one = traversal_index(i, count);
        decode_coord(p, one, coord);
        pointwise_vec(p, coord, (long long)one * VEC_WIDTH, column_operands);
    }
}
