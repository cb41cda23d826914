// Sums that are rounded to 16 bits before anything else is done with them change lanes as what they are then, two in a word:
// half as many exchanges as of sums.

// Lane 4g + q of a warp holds, of row g, columns 2q and 2q + 1 of four groups of eight, a word each. Afterwards it holds
// columns 8q to 8q + 7 of the 32.
__device__ __forceinline__ void gather_words(unsigned int (&v)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    #pragma unroll
    for (int group = 0; group < 4; group += 2) {
        const unsigned int other = __shfl_xor_sync(0xffffffffu, odd ? v[group] : v[group + 1], 1);
        if (odd) v[group] = other; else v[group + 1] = other;
    }
    #pragma unroll
    for (int group = 0; group < 2; ++group) {
        const unsigned int other = __shfl_xor_sync(0xffffffffu, high ? v[group] : v[group + 2], 2);
        if (high) v[group] = other; else v[group + 2] = other;
    }
}

// As `epilogue_store`, of sums that the epilogue takes as To.
template <class To, int COUNT>
__device__ __forceinline__ void leave_rounded(const Params& p, const WorkTile& w, const RowCoords& rows, const Accum (&sum)[16 * COUNT]) {
    #pragma unroll
    for (int block = 0; block < COUNT; ++block) {
        EpilogueOperands held;
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            const FragmentSlice piece = fragment_slice(p, w, rows, block, h);
            if (h == 0 || !SPARE_REGISTERS) load_epilogue_operands(p, piece, held);
            unsigned int v[4];
            #pragma unroll
            for (int group = 0; group < 4; ++group) {
                const Accum* const pair = sum + block * 16 + 4 * group + 2 * h;
                v[group] = narrow<To>(pair[0]).bits | (unsigned int)narrow<To>(pair[1]).bits << 16;
            }
            gather_words(v);
            #pragma unroll
            for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
                Rounded<To, VEC_WIDTH> acc;
                if constexpr (VEC_WIDTH == 1) acc.word[0] = v[i / 2] >> 16 * (i % 2);
                else
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH / 2; ++e) acc.word[e] = v[i * VEC_WIDTH / 2 + e];
                epilogue(p, piece.at[i], held.kept[i], acc, piece.is_there[i]);
            }
        }
    }
}
