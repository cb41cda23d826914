// norm_row_gradient computes the gradients of a normalization whose scale changes along its rows, in one read of x and dy.
// norm_parameters adds the CTAs' partial sums of dscale and dbias, in the order of the CTAs.
//
// Tile:     COLUMNS rows at a time; a CTA loops over tiles of rows.
// Pipeline: the next tile is loaded into registers while the current one is computed.
// Memory:   partial sums are [CTA][dbias, dscale][element of a row].
// Threads:  THREADS_PER_ROW threads share a row. A thread has the same positions of all rows of its CTA, so that its sums for
//           dscale and dbias stay in registers.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32 up to 1024; THREADS_PER_ROW: threads of a row, a power of two.
//   VEC_WIDTH: elements of a vector access, 1 to 16 bytes; STEPS: vectors of a thread in one batch, 1 or more.
//   RANK: axes of the index space; ROW_AXES: axes that count rows, 1 to RANK - 1.
//   ALONG: 1 if a vector lies along a row; 0 if a vector spans VEC_WIDTH adjacent rows.
//   CENTERED: 1 if a mean is subtracted; 0 for RMS normalization.
//   BLOCKS: CTAs that must fit on an SM, 1 or more; it bounds the registers of a thread.
//   EXACT: 1 if THREADS_PER_ROW * STEPS vectors are a whole row, so that no bound is checked.
//   COLUMNS: rows of a tile, a power of two. COMBINERS: threads of a CTA of norm_parameters.

#include "pdl.cuh"

constexpr int ROW_WARPS = THREADS_PER_ROW > 32 ? THREADS_PER_ROW / 32 : 1;  // warps of a row
// ROW_WARPS rounded up to a power of two
constexpr int COMBINED_WARPS = ROW_WARPS > 16 ? 32 : ROW_WARPS > 8 ? 16 : ROW_WARPS > 4 ? 8 : ROW_WARPS > 2 ? 4 : ROW_WARPS;
constexpr int SUMS = 2;  // of dbias and of dscale

// The vectors of a tile, in the types of the graph, and the factors of its rows.
struct Tile {
    Stored vec[STEPS];
    Row row;

    __device__ __forceinline__ void read(const Params& p, Count tile, int (&at)[RANK]) {
        const L2Policy once = evict_first_policy();
        const ThreadSlot slot = thread_slot(p, tile);
        locate_row(p, slot.row, at);
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count i = (Count)(slot.row_thread + s * THREADS_PER_ROW);
            locate_element(p, EXACT || i < (Count)p.count ? i : (Count)p.count - 1, at);
            load_elements(p, at, vec[s], once);
        }
        of_row(p, at, row);
    }
};

// Both sums of a row, in each of its threads. One barrier is enough: the next tile uses the other buffer.
__device__ __forceinline__ void reduce_rows(const ThreadSlot& slot, int buffer, Row& row) {
    constexpr int warp_lanes = THREADS_PER_ROW < 32 ? THREADS_PER_ROW : 32;
    #pragma unroll
    for (int distance = 1; distance < warp_lanes; distance *= 2) {
        row.sum[0] += __shfl_xor_sync(0xffffffffu, row.sum[0], distance);
        row.dot[0] += __shfl_xor_sync(0xffffffffu, row.dot[0], distance);
    }
    if constexpr (ROW_WARPS > 1) {
        __shared__ Vec<Compute, 2> parts[2][COLUMNS][ROW_WARPS];
        if (slot.row_thread % 32 == 0) parts[buffer][slot.column][slot.row_thread / 32] = {row.sum[0], row.dot[0]};
        __syncthreads();
        const int part = slot.row_thread % COMBINED_WARPS;
        Vec<Compute, 2> mine = {};
        if (ROW_WARPS == COMBINED_WARPS || part < ROW_WARPS) mine = parts[buffer][slot.column][part];
        row.sum[0] = mine.data[0], row.dot[0] = mine.data[1];
        #pragma unroll
        for (int distance = 1; distance < COMBINED_WARPS; distance *= 2) {
            row.sum[0] += __shfl_xor_sync(0xffffffffu, row.sum[0], distance);
            row.dot[0] += __shfl_xor_sync(0xffffffffu, row.dot[0], distance);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_row_gradient(const __grid_constant__ Params p) {
    pdl_wait();
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    Compute param_sums[SUMS][STEPS][VEC_WIDTH] = {};
    Tile next;
    next.read(p, blockIdx.x, at);
    int buffer = 0;
    #pragma unroll 1
    for (Count tile = blockIdx.x; tile < (Count)p.tiles; tile += gridDim.x, buffer ^= 1) {
        Tile current = next;
        if (tile + gridDim.x < (Count)p.tiles) next.read(p, tile + gridDim.x, at);
        const ThreadSlot slot = thread_slot(p, tile);
        current.row.sum[0] = current.row.dot[0] = (Compute)0;
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count i = (Count)(slot.row_thread + s * THREADS_PER_ROW);
            if (EXACT || i < (Count)p.count) {
                const Elements vec = widened(current.vec[s]);
                Compute scale[VEC_WIDTH];
                locate_element(p, i, at);
                scale_at(p, at, scale);
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) {
                    const Compute normal = normalized(vec, current.row, e), g = vec.g[e] * scale[e];
                    current.row.sum[0] += g;
                    multiply_add(current.row.dot[0], g, normal);
                    if (slot.is_live) {
                        param_sums[0][s][e] += vec.g[e];
                        multiply_add(param_sums[1][s][e], vec.g[e], normal);
                    }
                }
            }
        }
        reduce_rows(slot, buffer, current.row);
        // The same as concluded_gradient(), but g already contains the scale.
        current.row.scale[0] = current.row.inverse[0];
        const Compute factor = -current.row.inverse[0] / (Compute)p.elements;
        current.row.sum[0] *= factor;
        current.row.dot[0] *= factor * current.row.inverse[0];
        if (!slot.is_live) continue;
        locate_row(p, slot.row, at);
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const Count i = (Count)(slot.row_thread + s * THREADS_PER_ROW);
            if (EXACT || i < (Count)p.count) {
                Elements vec = widened(current.vec[s]);
                Compute scale[VEC_WIDTH];
                locate_element(p, i, at);
                scale_at(p, at, scale);
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) vec.g[e] *= scale[e];
                epilogue(p, at, vec, current.row);
            }
        }
    }
    pdl_trigger();
    // Adds the sums of the rows that the CTA has side by side, in order.
    constexpr int ROW_ELEMENTS = THREADS_PER_ROW * STEPS * VEC_WIDTH;
    __shared__ Compute columns[COLUMNS > 1 ? COLUMNS : 1][COLUMNS > 1 ? ROW_ELEMENTS : 1];
    const ThreadSlot mine = thread_slot(p, blockIdx.x);
    const long long elements = p.elements;
    #pragma unroll
    for (int sum = 0; sum < SUMS; ++sum) {
        Compute* const to = p.partial + ((long long)blockIdx.x * SUMS + sum) * elements;
        if constexpr (COLUMNS > 1) {
            __syncthreads();
            #pragma unroll
            for (int s = 0; s < STEPS; ++s)
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e)
                    columns[mine.column][(mine.row_thread + s * THREADS_PER_ROW) * VEC_WIDTH + e] = param_sums[sum][s][e];
            __syncthreads();
            for (int i = threadIdx.x; i < (int)elements; i += THREADS) {
                Compute total = columns[0][i];
                #pragma unroll
                for (int column = 1; column < COLUMNS; ++column) total += columns[column][i];
                to[i] = total;
            }
        } else {
            #pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                const int i = mine.row_thread + s * THREADS_PER_ROW;
                if (EXACT || i < (int)p.count) store<VEC_WIDTH>(to + i * VEC_WIDTH, Packed(), param_sums[sum][s]);
            }
        }
    }
}

// Adds the CTAs' sums for 32 adjacent elements, in a fixed order: each warp adds every WARPS-th CTA.
extern "C" __global__ void __launch_bounds__(COMBINERS, 1) norm_parameters(const __grid_constant__ Params p) {
    constexpr int WARPS = COMBINERS / 32, BATCH = 8;
    __shared__ Compute parts[SUMS][WARPS][32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, i = (int)blockIdx.x * 32 + lane;
    const bool is_live = i < (int)p.elements;
    const Compute* const from = p.partial + (is_live ? i : 0);
    const int blocks = (int)p.blocks;
    Compute sum[SUMS] = {};
    pdl_wait();
    for (int block = warp; block < blocks; block += WARPS * BATCH) {
        Compute batch[BATCH][SUMS];
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            #pragma unroll
            for (int j = 0; j < SUMS; ++j) {
                batch[k][j] = (Compute)0;
                if (block + k * WARPS < blocks) batch[k][j] = from[((long long)(block + k * WARPS) * SUMS + j) * p.elements];
            }
        #pragma unroll
        for (int k = 0; k < BATCH; ++k)
            #pragma unroll
            for (int j = 0; j < SUMS; ++j) sum[j] += batch[k][j];
    }
    #pragma unroll
    for (int j = 0; j < SUMS; ++j) parts[j][warp][lane] = sum[j];
    __syncthreads();
    if (warp != 0 || !is_live) return;
    #pragma unroll
    for (int j = 0; j < SUMS; ++j) {
        sum[j] = parts[j][0][lane];
        #pragma unroll
        for (int other = 1; other < WARPS; ++other) sum[j] += parts[j][other][lane];
    }
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_element(p, (Count)(i / VEC_WIDTH), at);
    at[RANK - 1] += i % VEC_WIDTH;
    finish_row(p, at, sum[0], sum[1]);
}
