// resample_windows computes averages over windows along one axis, pointwise operations, and averages over windows along the
// same axis again (the gradient of local response normalization). The generated before(), between() and after() are the
// operations that need none, one and both of the averages; Held has the values that a thread carries from one to the next.
//
// Tile:    TILE elements of the axis x COLUMNS vectors for a CTA, in shared memory. If the axis is longer than TILE, a CTA
//          writes OUTPUTS elements from BEFORE on; the other elements only serve their windows.
// Memory:  ALONG: the axis is contiguous, and a thread has one vector of VEC_WIDTH elements of it. Otherwise a thread has TURNS
//          elements of the axis for each of VEC_WIDTH contiguous pixels.
// Threads: AXIS_THREADS = TILE / (elements of a thread) threads cover the axis; each group of threads has its own vectors.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   TILE, COLUMNS, VEC_WIDTH, TURNS, OUTPUTS, BEFORE: see above; RANK: axes of the index space.
//   WINDOW: elements of a window; BACK, BACK_AGAIN: elements of the first and second window before its position.
//   PITCH: elements between rows of the tile in shared memory; BLOCKS: CTAs that must fit on an SM.

#include "fast_division.cuh"

constexpr int MARGIN = WINDOW - 1;  // zeros on each side of the tile
constexpr int OWN = ALONG ? VEC_WIDTH : TURNS, AXIS_THREADS = TILE / OWN, SIDE = ALONG ? 1 : VEC_WIDTH;
constexpr int SHARED = ALONG ? COLUMNS * PITCH : (TILE + 2 * MARGIN) * PITCH;

typedef Compute Values[TURNS][VEC_WIDTH];

// The offset of element c in the tile. If ALONG, padding between vectors keeps the lanes of a warp in different banks.
__device__ __forceinline__ int tile_offset(int c, int pixel) {
    c += MARGIN;
    return ALONG ? pixel * PITCH + c + (VEC_WIDTH > 1 ? c / VEC_WIDTH : 0) : c * PITCH + pixel;
}

__device__ __forceinline__ void put(Compute* tile, int c, int pixel, const Values& value) {
    #pragma unroll
    for (int o = 0; o < OWN; ++o) {
        Vec<Compute, SIDE> row;
        #pragma unroll
        for (int e = 0; e < SIDE; ++e) row.data[e] = value[ALONG ? 0 : o][ALONG ? o : e];
        *(Vec<Compute, SIDE>*)(tile + tile_offset(c + o, pixel)) = row;
    }
}

__device__ __forceinline__ float averaged(float sum) { return sum * (1.0f / WINDOW); }
__device__ __forceinline__ double averaged(double sum) { return sum / WINDOW; }

// Averages of the windows that extend REACH elements before a thread's own elements.
template <int REACH> __device__ __forceinline__ void average(const Compute* tile, int c, int pixel, Values& mean) {
    Compute sum[OWN][SIDE];
    #pragma unroll
    for (int j = 0; j < OWN + WINDOW - 1; ++j) {
        const Vec<Compute, SIDE> row = *(const Vec<Compute, SIDE>*)(tile + tile_offset(c - REACH + j, pixel));
        #pragma unroll
        for (int o = 0; o < OWN; ++o) {
            if (j < o || j >= o + WINDOW) continue;
            #pragma unroll
            for (int e = 0; e < SIDE; ++e) sum[o][e] = j == o ? row.data[e] : sum[o][e] + row.data[e];
        }
    }
    #pragma unroll
    for (int o = 0; o < OWN; ++o)
        #pragma unroll
        for (int e = 0; e < SIDE; ++e) mean[ALONG ? 0 : o][ALONG ? o : e] = averaged(sum[o][e]);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) resample_windows(const __grid_constant__ Params p) {
    __shared__ alignas(16) Compute tile[SHARED];
    const int thread = (int)threadIdx.x;
    const int axis_thread = ALONG ? thread % AXIS_THREADS : thread / COLUMNS;
    const int column = ALONG ? thread / AXIS_THREADS : thread % COLUMNS;
    const int c = axis_thread * OWN, pixel = column * SIDE;  // in the tile
    const Count asked = (Count)blockIdx.x * COLUMNS + column;
    const bool is_live = asked < (Count)p.vecs;
    Count left = is_live ? asked : (Count)p.vecs - 1;  // surplus threads repeat the last vector, and store nothing
    int at[RANK];
    #pragma unroll
    for (int j = RANK - 2; j > 0; --j) {
        const Count outer = quotient(left, p.steps[j], p.magic[j]);
        at[j] = (int)(left - outer * (Count)p.steps[j]);
        left = outer;
    }
    at[0] = (int)left;
    at[RANK - 2] *= SIDE;
    const int start = (int)blockIdx.y * OUTPUTS - BEFORE + c, extent = (int)p.extent;
    for (int i = thread; i < 2 * MARGIN * COLUMNS * SIDE; i += THREADS) {
        const int beside = i / (COLUMNS * SIDE);
        tile[tile_offset(beside < MARGIN ? beside - MARGIN : TILE + beside - MARGIN, i % (COLUMNS * SIDE))] = (Compute)0;
    }

    Held held[TURNS];
    Values value, mean;
    bool inside[TURNS];
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const int here = start + t;
        inside[t] = (unsigned int)here < (unsigned int)extent;
        at[RANK - 1] = here < 0 ? 0 : here < extent ? here : extent - (ALONG ? VEC_WIDTH : 1);
        before(p, at, held[t], value[t]);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) value[t][e] = inside[t] ? value[t][e] : (Compute)0;
    }
    put(tile, c, pixel, value);
    __syncthreads();
    average<BACK>(tile, c, pixel, mean);
    __syncthreads();
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const int here = start + t;
        at[RANK - 1] = here < 0 ? 0 : here < extent ? here : extent - (ALONG ? VEC_WIDTH : 1);
        between(p, at, held[t], mean[t], value[t]);
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) value[t][e] = inside[t] ? value[t][e] : (Compute)0;
    }
    put(tile, c, pixel, value);
    __syncthreads();
    average<BACK_AGAIN>(tile, c, pixel, mean);
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
        const bool is_own = c + t >= BEFORE && c + t < BEFORE + OUTPUTS;
        at[RANK - 1] = start + t;
        if (is_live && inside[t] && is_own) after(p, at, held[t], mean[t]);
    }
}
