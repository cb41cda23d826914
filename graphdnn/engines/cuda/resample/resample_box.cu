// resample_box computes averages over windows of WINDOW rows, along an axis that is not contiguous in memory.
//
// Tile:    ROWS outputs along the axis x THREADS_PER_ROW * VEC_WIDTH contiguous elements (TILE_COLS) for a CTA.
// Memory:  one TMA copy brings the rows of a tile and the WINDOW - 1 rows around them into shared memory, with zeros outside x.
//          x is therefore read once, for the windows and for the epilogue. CTAs are small and many, so that some wait for
//          their copy while others write.
// Threads: THREADS_PER_ROW threads cover the contiguous elements, VEC_WIDTH each. A thread slides a window over SPAN rows; the
//          values of the window stay in registers.
// Epilogue: FAST uses approximate instructions and repeats the outputs of a thread with exact ones if an error bound fails.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   AXIS: the axis of the windows; RANK: axes of the index space; WINDOW: rows of a window; BEFORE: rows of padding before x.
//   VEC_WIDTH: elements of a vector, 4; THREADS_PER_ROW: threads of a row of the tile; ROWS: outputs of a tile along AXIS.
//   SPAN: outputs of a thread, a divisor of ROWS.
//   OUTERS: other axes of the TMA box, 0 to 2; OUTER, OUTERMOST: their positions.
//   ALL_ROWS, WHOLE: 1 if the extents are multiples of SPAN, and of the tile; BLOCKS: CTAs that must fit on an SM.

#include "pdl.cuh"
#include "fast_division.cuh"
#include "hopper_pipeline.cuh"

constexpr int TILE_COLS = THREADS_PER_ROW * VEC_WIDTH, BOX_ROWS = ROWS + WINDOW - 1;
constexpr int BOX_BYTES = BOX_ROWS * TILE_COLS * (int)sizeof(Source);

// If no operation has a fast form, this name stands in a branch that is never taken.
template <int V> __device__ void fast_epilogue(
    const Params&, const int (&)[RANK], const float (&)[V], const Source (&)[V], unsigned int&) {}

template <bool IS_FAST> __device__ __forceinline__ void finish(
    const Params& p, const int (&at)[RANK], const float (&mean)[VEC_WIDTH], const Source (&raw)[VEC_WIDTH],
    unsigned int& fallback_flags) {
    if constexpr (IS_FAST) fast_epilogue(p, at, mean, raw, fallback_flags);
    else epilogue(p, at, mean, raw);
}

// Row `i` of a thread, with zeros outside x.
__device__ __forceinline__ void read(
    const Params& p, const Source* here, int (&at)[RANK], int first, int i, float (&value)[VEC_WIDTH]) {
    const int row = first - BEFORE + i, rows = (int)p.image;
    const bool counts = (unsigned int)row < (unsigned int)rows;
    at[AXIS] = row < 0 ? 0 : row < rows ? row : rows - 1;
    prologue(p, at, load_vec<VEC_WIDTH>(here + i * TILE_COLS).data, value);
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) value[e] = counts ? value[e] : 0.0f;
}

// Output `i`. ``fallback_flags`` receives a bit for each fast operation whose
// result is invalid.
template <bool IS_FAST> __device__ __forceinline__ void write(
    const Params& p, const Source* here, int (&at)[RANK], int first, int i, float (&sum)[VEC_WIDTH], unsigned int& fallback_flags) {
    at[AXIS] = first + i;
    if (!ALL_ROWS && first + i >= (int)p.outputs) return;
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) sum[e] *= 1.0f / WINDOW;
    finish<IS_FAST>(p, at, sum, load_vec<VEC_WIDTH>(here + (i + BEFORE) * TILE_COLS).data, fallback_flags);
}

// The outputs of a thread.
__device__ __forceinline__ void compute_outputs(
    const Params& p, const Source* here, int (&at)[RANK], int first, unsigned int& fallback_flags) {
    float value[WINDOW][VEC_WIDTH];
    #pragma unroll
    for (int i = 0; i < SPAN + WINDOW - 1; ++i) {
        read(p, here, at, first, i, value[i % WINDOW]);
        const int out = i + 1 - WINDOW;
        if (out < 0) continue;
        float sum[VEC_WIDTH];
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e)
                sum[e] = k == 0 ? value[out % WINDOW][e] : sum[e] + value[(out + k) % WINDOW][e];
        write<FAST>(p, here, at, first, out, sum, fallback_flags);
    }
}

// Repeats the epilogue in its exact form.
__device__ __forceinline__ void repeat_exact(const Params& p, const Source* here, int (&at)[RANK], int first) {
    #pragma unroll 1
    for (int out = 0; out < SPAN; ++out) {
        float sum[VEC_WIDTH];
        #pragma unroll
        for (int k = 0; k < WINDOW; ++k) {
            float value[VEC_WIDTH];
            read(p, here, at, first, out + k, value);
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) sum[e] = k == 0 ? value[e] : sum[e] + value[e];
        }
        unsigned int none = 0;
        write<false>(p, here, at, first, out, sum, none);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) resample_box(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char memory[];
    const smem_addr_t full = smem_addr(memory + BOX_BYTES);
    pdl_trigger();
    int at[RANK];  // in tiles
    unsigned int left = blockIdx.x;
    #pragma unroll
    for (int i = 0; i < RANK; ++i) {  // along the windows first, because adjacent tiles share rows
        const int j = i == 0 ? AXIS : RANK - i > AXIS ? RANK - i : RANK - i - 1;
        const unsigned int outer = quotient(left, p.tiles[j], p.magic[j]);
        at[j] = (int)(left - outer * (unsigned int)p.tiles[j]);
        left = outer;
    }
    at[AXIS] *= ROWS;
    at[RANK - 1] *= TILE_COLS;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_barrier_init();
    }
    __syncwarp();  // the warp initializes the barrier before its first thread arrives
    pdl_wait();
    if (threadIdx.x == 0) {
        mbarrier_expect_tx(full, BOX_BYTES);
        const int column = at[RANK - 1], row = at[AXIS] - BEFORE;
        if constexpr (OUTERS == 0) tma_load_tile(smem_addr(memory), p.box[0], full, column, row);
        else if constexpr (OUTERS == 1) tma_load_tile(smem_addr(memory), p.box[0], full, column, row, at[OUTER]);
        else tma_load_tile(smem_addr(memory), p.box[0], full, column, row, at[OUTER], at[OUTERMOST]);
    }
    __syncthreads();
    const int row_thread = (int)threadIdx.x % THREADS_PER_ROW, part = (int)threadIdx.x / THREADS_PER_ROW;
    at[AXIS] += part * SPAN;
    at[RANK - 1] += row_thread * VEC_WIDTH;
    mbarrier_wait_parity(full, 0);
    if (!WHOLE && (at[RANK - 1] >= (int)p.wide || at[AXIS] >= (int)p.outputs)) return;
    const Source* const here = (const Source*)memory + part * SPAN * TILE_COLS + row_thread * VEC_WIDTH;
    unsigned int fallback_flags = 0;
    const int first = at[AXIS];
    compute_outputs(p, here, at, first, fallback_flags);
    if constexpr (FAST) {
        if (fallback_flags & NEEDS_POWF) repeat_exact(p, here, at, first);  // rare
    }
}
