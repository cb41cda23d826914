// Epilogue for results whose accumulators are rounded to 16 bits before anything else is computed: lanes exchange the rounded
// values, two in a word, which takes half as many shuffles as exchanging accumulators (hopper_halo_dgrad.cu).

#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

// exchange_lanes (epilogue_store.cuh) for words of two 16-bit values: `v[group]` has columns 2q and 2q + 1 of a group of eight before,
// and columns 8q + 2 * group and the next one after.
__device__ __forceinline__ void exchange_words(unsigned int (&v)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    #pragma unroll
    for (int group = 0; group < 4; group += 2) {
        const unsigned int received = __shfl_xor_sync(0xffffffffu, odd ? v[group] : v[group + 1], 1);
        if (odd) v[group] = received; else v[group + 1] = received;
    }
    #pragma unroll
    for (int group = 0; group < 2; ++group) {
        const unsigned int received = __shfl_xor_sync(0xffffffffu, high ? v[group] : v[group + 2], 2);
        if (high) v[group] = received; else v[group + 2] = received;
    }
}

// epilogue_store for accumulators that the epilogue takes as type To.
template <class To, int COUNT>
__device__ __forceinline__ void epilogue_store_16bit(const Params& p, const WorkTile& w, const RowCoords& rows, const Accum (&accum)[16 * COUNT]) {
    #pragma unroll
    for (int block = 0; block < COUNT; ++block) {
        EpilogueOperands operands;
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            const FragmentSlice slice = fragment_slice(p, w, rows, block, h);
            if (h == 0 || !SPARE_REGISTERS) load_epilogue_operands(p, slice, operands);
            unsigned int v[4];
            #pragma unroll
            for (int group = 0; group < 4; ++group) {
                const Accum* const pair = accum + block * 16 + 4 * group + 2 * h;
                v[group] = narrow<To>(pair[0]).bits | (unsigned int)narrow<To>(pair[1]).bits << 16;
            }
            exchange_words(v);
            #pragma unroll
            for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
                Rounded<To, VEC_WIDTH> acc;
                if constexpr (VEC_WIDTH == 1) acc.word[0] = v[i / 2] >> 16 * (i % 2);
                else
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH / 2; ++e) acc.word[e] = v[i * VEC_WIDTH / 2 + e];
                epilogue(p, slice.coord[i], operands.columns[i], acc, slice.is_inside[i]);
            }
        }
    }
}
