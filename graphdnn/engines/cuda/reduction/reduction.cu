// reduce computes a reduction over some axes of an index space: y[kept axes] = op over the reduced axes of element(...).
// Every sum is formed in one order, which depends on the shape and the launch alone.
//
// Tile:    KEPT_VECS vectors along the kept axes for a CTA; THREADS_PER_RESULT threads share the elements of each. With SPLIT,
//          blockIdx.y divides the reduced elements.
// Memory:  ALONG: the reduced axis is contiguous, so a vector lies on it and adjacent threads reduce together. Otherwise a
//          vector lies on the last kept axis, and adjacent threads have adjacent results.
// Threads: a thread has one of KEPT_VECS vectors and one of THREADS_PER_RESULT shares of its elements. Lanes combine by
//          shuffles, then warps through shared memory.
//
// The generated text defines element(p, at, value): VEC_WIDTH adjacent elements of each operand; finish(p, at, acc): stores a
// result; and the operator: identity, accumulate (adds values to an accumulator), combined (two accumulators) and concluded.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32; THREADS_PER_RESULT: threads that share a result, a power of two
//   up to THREADS.
//   VEC_WIDTH: elements of a vector; UNROLL: vectors of a thread whose loads are in flight together, 1 or more.
//   KEPT_AXES, REDUCED_AXES: numbers of kept and reduced axes, 1 or more; ROWS: operands of an element; PARTS: accumulators of
//   a result.
//   ALONG, SPLIT: flags, see above; FINISH: results that finish stores at once; BLOCKS_PER_SM: CTAs that must fit on an SM.
//
// Variants (from the generator): FOLD: 0: an operator of cuDNN; 1: sums and sums of squares; 2: gradients of batch
// normalization; 3: gradients of a normalization; 4: partial sums of those gradients.

#include "pdl.cuh"
#if FOLD == 0
#include "reduction_operator.cuh"
#else
#include "sums.cuh"
#endif
#if FOLD == 1
#include "genstats.cuh"
#elif FOLD == 2
#include "bn_weights.cuh"
#elif FOLD == 3
#include "norm_sums.cuh"
#elif FOLD == 4
#include "norm_partial_sums.cuh"
#endif

constexpr int KEPT_VECS = THREADS / THREADS_PER_RESULT;  // vectors of a CTA
constexpr int WARPS = THREADS / 32, AXES = KEPT_AXES + REDUCED_AXES;
constexpr int OUT = ALONG ? 1 : VEC_WIDTH;  // results of a thread
constexpr int VEC_AXIS = ALONG ? AXES - 1 : KEPT_AXES - 1;
// Whether several warps have partial results of one result
constexpr bool SHARED = ALONG ? THREADS_PER_RESULT > 32 : THREADS_PER_RESULT > 1;
static_assert(
    ALONG ? THREADS_PER_RESULT <= 32 || THREADS_PER_RESULT == THREADS : KEPT_VECS <= 32 || THREADS_PER_RESULT == 1,
    "whole warps, or parts of one"
);

template <int RANK> __device__ __forceinline__ void coordinates(Count i, const long long (&size)[RANK], int* at) {
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count outer = i / (Count)size[j];
        at[j] = (int)(i - outer * (Count)size[j]);
        i = outer;
    }
    at[0] = (int)i;
}

// Advances by THREADS_PER_RESULT vectors: adds the digits of THREADS_PER_RESULT with carry.
__device__ __forceinline__ void advance(const Params& p, int* at) {
    unsigned int carry = 0;
    #pragma unroll
    for (int j = REDUCED_AXES - 1; j > 0; --j) {
        const unsigned int next = (unsigned int)at[j] + (unsigned int)p.step[j] + carry;
        carry = next >= (unsigned int)p.reduced_size[j];
        at[j] = (int)(carry ? next - (unsigned int)p.reduced_size[j] : next);
    }
    at[0] += (int)((unsigned int)p.step[0] + carry);
}

__device__ __forceinline__ void element_at(const Params& p, const int (&at)[AXES], Compute (&value)[ROWS][VEC_WIDTH]) {
    int coord[AXES];
    #pragma unroll
    for (int j = 0; j < AXES; ++j) coord[j] = j == VEC_AXIS ? at[j] * VEC_WIDTH : at[j];
    element(p, coord, value);
}

// Vectors `from`, from + THREADS_PER_RESULT, ... below `end` of the outer vector `k`. Several loads precede the first use.
__device__ __forceinline__ void accumulate(const Params& p, Count k, Count from, Count end,
                                           Compute (&acc)[PARTS][VEC_WIDTH]) {
    int at[AXES];
    coordinates<KEPT_AXES>(k, p.kept_size, at);
    coordinates<REDUCED_AXES>(from, p.reduced_size, at + KEPT_AXES);
    Count r = from;
    for (; r + (UNROLL - 1) * THREADS_PER_RESULT < end; r += UNROLL * THREADS_PER_RESULT) {
        Compute value[UNROLL][ROWS][VEC_WIDTH];
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            element_at(p, at, value[u]);
            advance(p, at + KEPT_AXES);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) accumulate(acc, value[u]);
    }
    if constexpr (UNROLL > 1) {
        if (r >= end) return;
        // The remainder has less than UNROLL vectors, which are also loaded together; the last vector replaces missing ones.
        Compute value[UNROLL][ROWS][VEC_WIDTH];
        #pragma unroll
        for (int u = 0; u < UNROLL - 1; ++u) {
            element_at(p, at, value[u]);
            if (r + (u + 1) * THREADS_PER_RESULT < end) advance(p, at + KEPT_AXES);
        }
        #pragma unroll
        for (int u = 0; u < UNROLL - 1; ++u)
            if (r + u * THREADS_PER_RESULT < end) accumulate(acc, value[u]);
    }
}

// Reduces the lanes of a warp from distance FIRST to below END.
template <int FIRST, int END, int N> __device__ __forceinline__ void combine_lanes(Compute (&acc)[PARTS][N]) {
    #pragma unroll
    for (int distance = END / 2; distance >= FIRST; distance /= 2)
        #pragma unroll
        for (int part = 0; part < PARTS; ++part)
            #pragma unroll
            for (int n = 0; n < N; ++n)
                acc[part][n] = combined(acc[part][n], __shfl_xor_sync(0xffffffffu, acc[part][n], distance));
}

// Reduces the warps of a CTA, in order. Then total(i) is result i of the K * N results of lanes 0 to K - 1.
template <int K, int N> struct Warps {
    Compute (&held)[PARTS][WARPS][K * N];
    __device__ __forceinline__ void put(const Compute (&acc)[PARTS][N]) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (lane < K)
            #pragma unroll
            for (int part = 0; part < PARTS; ++part)
                #pragma unroll
                for (int n = 0; n < N; ++n) held[part][warp][lane * N + n] = acc[part][n];
        __syncthreads();
    }
    __device__ __forceinline__ void total(int i, Compute (&acc)[PARTS][1]) {
        #pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            acc[part][0] = held[part][0][i];
            #pragma unroll
            for (int warp = 1; warp < WARPS; ++warp) acc[part][0] = combined(acc[part][0], held[part][warp][i]);
        }
    }
};

template <int N> __device__ __forceinline__ void conclude(const Params& p, Count index, Compute (&acc)[PARTS][N]) {
    static_assert(N == FINISH, "finish takes FINISH neighbours");
    #pragma unroll
    for (int part = 0; part < PARTS; ++part)
        #pragma unroll
        for (int n = 0; n < N; ++n) acc[part][n] = concluded(p, acc[part][n]);
    int at[KEPT_AXES];
    coordinates<KEPT_AXES>(index, p.kept_extent, at);
    finish(p, at, acc);
}

// Finishes the results `index`, index + 1, ..., or stores partial results if several CTAs share them.
template <int N> __device__ __forceinline__ void deliver(const Params& p, Count index, Compute (&acc)[PARTS][N]) {
    if constexpr (SPLIT) {
        #pragma unroll
        for (int part = 0; part < PARTS; ++part)
            #pragma unroll
            for (int n = 0; n < N; ++n)
                p.partial[((long long)blockIdx.y * PARTS + part) * p.results + index + n] = acc[part][n];
    } else conclude(p, index, acc);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) reduce(const __grid_constant__ Params p) {
    pdl_wait();
    const int reduced_thread = ALONG ? threadIdx.x % THREADS_PER_RESULT : threadIdx.x / KEPT_VECS;
    const int kept_vec = ALONG ? threadIdx.x / THREADS_PER_RESULT : threadIdx.x % KEPT_VECS;
    const Count tile = (Count)blockIdx.x * KEPT_VECS, k = tile + kept_vec;
    const bool kept = k < (Count)p.kept_count;
    Compute acc[PARTS][VEC_WIDTH];
    #pragma unroll
    for (int part = 0; part < PARTS; ++part)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) acc[part][e] = identity();
    if (kept) {
        const Count begin = (Count)blockIdx.y * (Count)p.per_block, rest = (Count)p.reduced_count - begin;
        accumulate(p, k, begin + reduced_thread, begin + (rest < (Count)p.per_block ? rest : (Count)p.per_block), acc);
    }
    if constexpr (SPLIT) pdl_trigger();
    Compute result[PARTS][OUT];
    #pragma unroll
    for (int part = 0; part < PARTS; ++part)
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e)
            result[part][e % OUT] = e < OUT ? acc[part][e] : combined(result[part][e % OUT], acc[part][e]);
    combine_lanes<ALONG ? 1 : KEPT_VECS, ALONG ? (THREADS_PER_RESULT < 32 ? THREADS_PER_RESULT : 32) : 32>(result);
    if constexpr (SHARED) {
        __shared__ Compute held[PARTS][WARPS][KEPT_VECS * OUT];
        Warps<KEPT_VECS, OUT> warps{held};
        warps.put(result);
        for (int i = threadIdx.x; i < KEPT_VECS * OUT; i += THREADS) {
            if (tile * OUT + i >= (Count)p.results) break;
            Compute total[PARTS][1];
            warps.total(i, total);
            deliver(p, tile * OUT + i, total);
        }
    } else if (kept && reduced_thread == 0) {
        constexpr int N = SPLIT ? OUT : FINISH;
        #pragma unroll
        for (int e = 0; e < OUT; e += N) {
            Compute part_of[PARTS][N];
            #pragma unroll
            for (int part = 0; part < PARTS; ++part)
                #pragma unroll
                for (int n = 0; n < N; ++n) part_of[part][n] = result[part][e + n];
            deliver(p, k * OUT + e, part_of);
        }
    }
}
