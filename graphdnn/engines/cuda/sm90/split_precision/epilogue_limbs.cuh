// Sums that are joined as they leave, 32 columns at a time: to the epilogue, or to the parts of a split product.

template <class Sums>
__device__ __forceinline__ void leave_joined(const Params& p, const Work& w, int number, int consumer, Sums& sums) {
    const int part = SPLIT ? number / (int)p.tiles : 0;
    const Rows at = rows_of(p, w, consumer, 0);
    #pragma unroll
    for (int block = 0; block < BN / 32; ++block) {
        sums.pin_all();  // joined here and not all before: there are no registers for it
        Accumulator some[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) some[i] = sums.result(block * 16 + i);
        if constexpr (SPLIT) store_partial(p, part, piece_number(w.tile, consumer, 0, block), some);
        else leave_all<1>(p, w, at, block, some);
    }
}
