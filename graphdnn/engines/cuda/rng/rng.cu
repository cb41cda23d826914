// rng writes random numbers by Philox 4x32-10: one counter yields four elements that are consecutive in row-major order.
//
// Tile:    COUNTER_ELEMS elements on the axis COUNTER_AXIS x VEC_WIDTH elements on the axis VEC_AXIS for a thread. COUNTER_AXIS
//          is the last axis of the row-major order, so the four elements of a counter lie on it.
// Memory:  numbers are stored in vectors of STORE_WIDTH elements. BITS: numbers are stored as bits along COUNTER_AXIS, and the
//          results of the epilogue along VEC_AXIS.
// Threads: threads are independent; the grid strides over all tiles. AHEAD: operands of the epilogue are loaded one iteration
//          before their use, while numbers are drawn.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   DISTRIBUTION: BERNOULLI, UNIFORM or NORMAL; RANK: axes of the index space.
//   COUNTER_ELEMS: 1, 4 or 8; VEC_WIDTH: 1 or more; COUNTER_AXIS, VEC_AXIS: see above; STORE_WIDTH: elements of a store, 1 or
//   more; WHOLE: 1 if the extent of COUNTER_AXIS is a multiple of COUNTER_ELEMS.
//   BITS, AHEAD: flags, see above; BLOCKS: CTAs that must fit on an SM if AHEAD, otherwise 0.

#include "philox.cuh"

enum { BERNOULLI, UNIFORM, NORMAL };

// The upper 24 bits of a word: u * 2^24.
__device__ __forceinline__ int uniform_bits(unsigned int word) { return (int)(word >> 8); }

// first + second * value as on the host: two roundings in double, without a fused multiply-add, then one to float.
__device__ __forceinline__ float placed(double value, const Params& p) {
    return (float)__dadd_rn(p.first, __dmul_rn(p.second, value));
}

// Box-Muller. u_even + 2^-24 and 2 u_odd are exact in float.
__device__ __forceinline__ void standard_normal(unsigned int even, unsigned int odd, float& a, float& b) {
    const float radius = sqrtf(-2.0f * logf((float)(uniform_bits(even) + 1) * 0x1p-24f));
    const float turn = (float)uniform_bits(odd) * 0x1p-23f;  // in half turns
    float sine, cosine;
#ifdef __CUDA_ARCH__
    sincospif(turn, &sine, &cosine);
#else
    sine = (float)sin(3.14159265358979323846 * (double)turn);
    cosine = (float)cos(3.14159265358979323846 * (double)turn);
#endif
    a = radius * cosine;
    b = radius * sine;
}

__device__ __forceinline__ void drawn(const Words& words, const Params& p, float (&to)[4]) {
    if constexpr (DISTRIBUTION == NORMAL) {
        #pragma unroll
        for (int i = 0; i < 4; i += 2) {
            float a, b;
            standard_normal(words.at[i], words.at[i + 1], a, b);
            to[i] = placed((double)a, p);
            to[i + 1] = placed((double)b, p);
        }
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned int word = words.at[i];
            if constexpr (DISTRIBUTION == BERNOULLI) to[i] = word < (unsigned int)p.below || p.always ? 1.0f : 0.0f;
            else to[i] = placed((double)uniform_bits(word) * 0x1p-24, p);
        }
    }
}

// Widths that this variant does not write; branches that are never taken name them.
template <int V> __device__ void write(const Params&, const int (&)[RANK], const float (&)[V], const Asked&) {}
template <int V> __device__ void write_one(const Params&, const int (&)[RANK], const float (&)[V]) {}
template <int V> __device__ void write_bits(const Params&, const int (&)[RANK], const float (&)[V]) {}

__device__ __forceinline__ void place(const Params& p, Count i, int (&at)[RANK]) {
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count outer = i / (Count)p.steps[j];
        at[j] = (int)(i - outer * (Count)p.steps[j]);
        i = outer;
    }
    at[0] = (int)i;
    at[COUNTER_AXIS] *= COUNTER_ELEMS;
    at[VEC_AXIS] *= VEC_WIDTH;
}

// The operands that the fused operations read.
constexpr int EACH = VEC_WIDTH == 1 ? STORE_WIDTH : 1, ACCESSES = COUNTER_ELEMS / EACH;
struct Beside {
    Asked of[ACCESSES];

    __device__ __forceinline__ void read(const Params& p, Count i) {
        int at[RANK];
        place(p, i, at);
        #pragma unroll
        for (int k = 0; k < ACCESSES; ++k) {
            if (WHOLE || (int)p.counter_extent - at[COUNTER_AXIS] >= EACH) ask(p, at, of[k]);
            at[COUNTER_AXIS] += EACH;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) rng(const __grid_constant__ Params p) {
    const unsigned long long key = seed(p), start = offset(p);
    const Count count = (Count)p.count, step = (Count)gridDim.x * THREADS;
    Count i = (Count)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    Beside next;
    if constexpr (AHEAD) next.read(p, i);
    for (; i < count; i += step) {
        // With AHEAD, the loads are issued one turn early and overlap the drawing; the compiler would issue them late.
        if constexpr (!AHEAD) next.read(p, i);
        const Beside now = next;
        if constexpr (AHEAD)
            if (i + step < count) next.read(p, i + step);
        int at[RANK];
        place(p, i, at);
        unsigned long long element = 0;
        #pragma unroll
        for (int j = 0; j < RANK; ++j) element += (unsigned long long)((long long)at[j] * p.row_major[j]);

        if constexpr (COUNTER_ELEMS == 1) {  // contiguous elements belong to different counters
            float four[4];
            drawn(philox(start + element / 4, key), p, four);
            float one[1] = {four[0]};
            #pragma unroll
            for (int k = 1; k < 4; ++k) one[0] = (element & 3) == k ? four[k] : one[0];
            write(p, at, one, now.of[0]);
        } else if constexpr (VEC_WIDTH == 1) {  // the row-major order is the memory order
            float value[COUNTER_ELEMS];
            Words words[COUNTER_ELEMS < 4 ? 1 : COUNTER_ELEMS / 4];
            philox(start + element / 4, key, words);
            #pragma unroll
            for (int k = 0; k < COUNTER_ELEMS; k += 4) {
                float four[4];
                drawn(words[k / 4], p, four);
                #pragma unroll
                for (int e = 0; e < 4; ++e) value[k + e] = four[e];
            }
            #pragma unroll
            for (int k = 0; k < COUNTER_ELEMS; k += STORE_WIDTH) {
                const int left = WHOLE ? STORE_WIDTH : (int)p.counter_extent - at[COUNTER_AXIS];
                float some[STORE_WIDTH];
                #pragma unroll
                for (int e = 0; e < STORE_WIDTH; ++e) some[e] = value[k + e];
                if (left >= STORE_WIDTH) {
                    write(p, at, some, now.of[k / STORE_WIDTH]);
                } else {  // the remainder of a single row
                    #pragma unroll
                    for (int e = 0; e < STORE_WIDTH - 1; ++e) {
                        int here[RANK];
                        for (int j = 0; j < RANK; ++j) here[j] = at[j];
                        here[COUNTER_AXIS] += e;
                        const float one[1] = {some[e]};
                        if (e < left) write_one(p, here, one);
                    }
                }
                at[COUNTER_AXIS] += STORE_WIDTH;
            }
        // A tile: a byte of bits on the last axis, for each of VEC_WIDTH contiguous elements of VEC_AXIS
        } else if constexpr (BITS) {
            unsigned int bits[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                Words words[COUNTER_ELEMS < 4 ? 1 : COUNTER_ELEMS / 4];
                philox(start + (element + (unsigned long long)(e * p.row_major[VEC_AXIS])) / 4, key, words);
                float drawn_row[COUNTER_ELEMS];
                bits[e] = 0;
                #pragma unroll
                for (int k = 0; k < COUNTER_ELEMS; k += 4) {
                    float four[4];
                    drawn(words[k / 4], p, four);
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        drawn_row[k + i] = four[i];
                        bits[e] |= four[i] != 0.0f ? 1u << (k + i) : 0;
                    }
                }
                write_bits(p, at, drawn_row);
                at[VEC_AXIS] += 1;
            }
            at[VEC_AXIS] -= VEC_WIDTH;
            #pragma unroll
            for (int k = 0; k < COUNTER_ELEMS; ++k) {
                float row[VEC_WIDTH];
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) row[e] = bits[e] >> k & 1 ? 1.0f : 0.0f;
                write(p, at, row, now.of[k]);
                at[COUNTER_AXIS] += 1;
            }
        } else {  // a tile: four elements on COUNTER_AXIS, VEC_WIDTH contiguous elements on VEC_AXIS
            float value[4][VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) {
                float four[4];
                drawn(philox(start + (element + (unsigned long long)(e * p.row_major[VEC_AXIS])) / 4, key), p, four);
                #pragma unroll
                for (int k = 0; k < 4; ++k) value[k][e] = four[k];
            }
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                write(p, at, value[k], now.of[k]);
                at[COUNTER_AXIS] += 1;
            }
        }
    }
}
