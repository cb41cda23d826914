// Skinny GEMM on the tensor cores of a warp: c[few, many] = sum over k, where both operands are contiguous along k.
//
// Tile:     16 * LINES lines of the large operand and all FEW lines of the small one for a CTA. Warps split k, DEPTH elements at
//           a time, and their accumulators are added through shared memory in the order of the warps.
// Loads:    the large operand is read once, from global memory straight to registers. Lane 4 * g + j reads 16 bytes of lines g
//           and g + 8, at k = 8 j. The mma instruction expects another order of k, but the order is the same for both operands.
// Epilogue: generated, one element of a thread at a time.
//
// Required constants (from the generator): FEW: lines of the small operand, up to 16; LINES: 1 or 2; TIMES: loads of DEPTH
// elements in flight; THREADS, BLOCKS: launch bounds; RANK; FEW_ARE_ROWS: the small operand has the rows of c.

#include "pdl.cuh"
#include "predicated_load.cuh"
#include "mma.cuh"

constexpr int WARPS = THREADS / 32;
constexpr int DEPTH = 64;  // k elements of one load of a warp
constexpr int ALL = 16 * LINES, COLUMNS = (FEW + 7) / 8;
constexpr int PITCH = ALL + 4;

// Load eight elements, or zeros. The large operand is read once, so its loads do not allocate in L1.
__device__ __forceinline__ uint4 read_once(const Element* from, bool inside) {
    uint4 w = {0u, 0u, 0u, 0u};
#ifdef __CUDA_ARCH__
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; "
                 "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w) : "l"(from), "r"((int)inside));
#else
    if (inside) w = *(const uint4*)from;
#endif
    return w;
}
__device__ __forceinline__ uint4 read_often(const Element* from, bool inside) {
    Vec<Element, 8> pack;
    load_if<8>(inside, from, pack.data);
    return *(const uint4*)&pack;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mma_skinny(const __grid_constant__ Params p) {
    __shared__ float sums[WARPS][8 * COLUMNS][PITCH];
    pdl_trigger();
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4, warp = (int)threadIdx.x / 32;
    const long long first = (long long)blockIdx.x * ALL;
    const int depth = (int)p.depth;
    const Element *many[2 * LINES], *few[COLUMNS];
    #pragma unroll
    for (int i = 0; i < 2 * LINES; ++i) {
        const long long line = first + 8 * i + g;  // lines past the end read the last one again
        many[i] = p.many + (line < p.lines ? line : p.lines - 1) * p.many_pitch + 8 * j;
    }
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) few[c] = p.few + (8 * c + g < FEW ? 8 * c + g : 0) * p.few_pitch + 8 * j;
    float sum[LINES][COLUMNS][4];
    #pragma unroll
    for (int m = 0; m < LINES; ++m)
        #pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[m][c][e] = 0.0f;

    pdl_wait();
    #pragma unroll 1
    for (int k0 = warp * DEPTH; k0 < depth; k0 += WARPS * DEPTH * TIMES) {
        uint4 a[TIMES][2][2 * LINES], b[TIMES][2][COLUMNS];
        #pragma unroll
        for (int t = 0; t < TIMES; ++t)
            #pragma unroll
            for (int i = 0; i < 2 * LINES; ++i)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int k = k0 + t * (WARPS * DEPTH) + half * 32;
                    a[t][half][i] = read_once(many[i] + k, k + 8 * j < depth);
                }
        #pragma unroll
        for (int t = 0; t < TIMES; ++t)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                #pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    const int k = k0 + t * (WARPS * DEPTH) + half * 32;
                    b[t][half][c] = read_often(few[c] + k, k + 8 * j < depth && 8 * c + g < FEW);
                }
        #pragma unroll
        for (int t = 0; t < TIMES; ++t)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                #pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    #pragma unroll
                    for (int m = 0; m < LINES; ++m) {
                        const uint4 low = a[t][half][2 * m], high = a[t][half][2 * m + 1], x = b[t][half][c];
                        const unsigned int one[4] = {low.x, high.x, low.y, high.y}, two[4] = {low.z, high.z, low.w, high.w};
                        multiply_warp<Element, Element, float>(sum[m][c], one, x.x, x.y);
                        multiply_warp<Element, Element, float>(sum[m][c], two, x.z, x.w);
                    }
    }

    #pragma unroll
    for (int m = 0; m < LINES; ++m)
        #pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sums[warp][8 * c + 2 * j + e % 2][16 * m + e / 2 * 8 + g] = sum[m][c][e];
    __syncthreads();
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < ALL * FEW; i += THREADS) {
        const int column = i / ALL, line = i % ALL;
        if (first + line >= p.lines) continue;
        float acc[1] = {0.0f};
        #pragma unroll
        for (int w = 0; w < WARPS; ++w) acc[0] += sums[w][column][line];
        int at[RANK] = {};
        at[RANK - 2] = FEW_ARE_ROWS ? column : (int)first + line;
        at[RANK - 1] = FEW_ARE_ROWS ? (int)first + line : column;
        epilogue(p, at, acc);
    }
}
