// Operands of a warp in matrix products over units. A lane has 16 contiguous bytes along K, in the order of memory. Both
// operands permute K in the same way, which leaves the product unchanged.

#include "rnn_rows.cuh"
#include "rnn_exchange.cuh"

struct TimeStep { int start, batch; };

// Time step `s` in the order of a direction; beyond the last one it has no sequences.
__device__ __forceinline__ TimeStep time_step_at(const Params& p, int s, bool back) {
    if (s >= (int)p.steps) return {0, 0};
    const int t = back ? (int)p.steps - 1 - s : s;
    return {first_row(p, t), sequences(p, t)};
}

__device__ __forceinline__ unsigned int select_word(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// Eight contiguous elements of the packed weights.
__device__ __forceinline__ uint4 load_eight(const Params& p, const State* matrix, long long at, bool is_aligned) {
    if (is_aligned) return __ldg((const uint4*)(matrix + at));
    Vec<State, 8> vec;
    #pragma unroll
    for (int e = 0; e < 8; ++e) vec[e] = matrix[(at + e) * p.w_step];
    return *(const uint4*)&vec;
}

// A warp's part of the recurrent matrix: in registers, or in shared memory if STAGED.
template <int BLOCKS_OF_K, int TILES> struct Weights {
    uint4 words[STAGED ? 1 : BLOCKS_OF_K][STAGED ? 1 : TILES];
    uint4* staged;

    __device__ __forceinline__ Weights(uint4* memory)
        : staged(memory + (int)threadIdx.x / 32 * BLOCKS_OF_K * TILES * 32 + (int)threadIdx.x % 32) {}

    __device__ __forceinline__ void set(int kb, int tile, const uint4& value) {
        if constexpr (STAGED) staged[(kb * TILES + tile) * 32] = value;
        else words[kb][tile] = value;
    }

    __device__ __forceinline__ uint4 at(int kb, int tile) const {
        if constexpr (STAGED) return staged[(kb * TILES + tile) * 32];
        else return words[kb][tile];
    }
};

// Loads COUNT blocks of 32 values of each sequence, from block `first` on, that other CTAs store. `rows` has OF_GATE blocks of
// each gate for this warp. Beyond the last unit, values are zeros.
template <int COUNT, int TAIL, int OF_GATE> __device__ __forceinline__ void poll_values(
    const State* const (&rows)[ROWS / 8], int first_k, int hidden, int first, uint4 (&state)[ROWS / 8 * COUNT]
) {
    poll_all<COUNT, TAIL>([&](int i) {
        const int block = (first + i % COUNT) % OF_GATE * 32, k = first_k + block;
        const State* const values = rows[i / COUNT] + (first + i % COUNT) / OF_GATE * hidden;
        return (const uint4*)(values + (WHOLE ? block : k < hidden ? k : 0));
    }, state);
    if constexpr (!WHOLE) {
        #pragma unroll
        for (int i = 0; i < ROWS / 8 * COUNT; ++i)
            if (first_k + (first + i % COUNT) % OF_GATE * 32 >= hidden) state[i] = make_uint4(0, 0, 0, 0);
    }
}

template <int PAIRS> __device__ __forceinline__ void clear(float (&sum)[ROWS / 8][PAIRS][4]) {
    #pragma unroll
    for (int r = 0; r < ROWS / 8; ++r)
        #pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[r][pair][e] = 0.0f;
}

// Adds the products with COUNT blocks of 32 values, from block `first` on. State: of sequence r * 8 + lane / 4, block by block.
// Columns of the matrix are M of the MMA, and eight sequences are N: then a CTA needs few sequences, and reads little from
// other CTAs.
template <int COUNT, int BLOCKS_OF_K, int TILES>
__device__ __forceinline__ void add_products(
    float (&sum)[ROWS / 8][TILES / 2][4], const uint4 (&state)[ROWS / 8 * COUNT],
    const Weights<BLOCKS_OF_K, TILES>& weights, int first
) {
    #pragma unroll
    for (int kb = 0; kb < COUNT; ++kb)
        #pragma unroll
        for (int pair = 0; pair < TILES / 2; ++pair) {
            const uint4 upper = weights.at(first + kb, 2 * pair), lower = weights.at(first + kb, 2 * pair + 1);
            #pragma unroll
            for (int half = 0; half < 4; half += 2) {
                const unsigned int a[4] = {
                    select_word(upper, half), select_word(lower, half), select_word(upper, half + 1), select_word(lower, half + 1)
                };
                #pragma unroll
                for (int r = 0; r < ROWS / 8; ++r) {
                    const uint4& values = state[r * COUNT + kb];
                    multiply_warp<State, State, float>(sum[r][pair], a, select_word(values, half), select_word(values, half + 1));
                }
            }
        }
}

// Stores the partial sums of a CTA's warps for the reduction: [WARPS][ROWS][PITCH].
template <int TILES, int PITCH>
__device__ __forceinline__ void store_partial_sums(const float (&sum)[ROWS / 8][TILES / 2][4], float* parts) {
    const int warp = (int)threadIdx.x / 32, group = (int)threadIdx.x % 32 / 4, place = (int)threadIdx.x % 4;
    if (STAGED) __syncthreads();  // the buffer is single
    #pragma unroll
    for (int r = 0; r < ROWS / 8; ++r)
        #pragma unroll
        for (int pair = 0; pair < TILES / 2; ++pair)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
                parts[(warp * ROWS + r * 8 + place * 2 + e % 2) * PITCH + pair * 16 + e / 2 * 8 + group] = sum[r][pair][e];
    __syncthreads();
}
