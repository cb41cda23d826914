// Sums that are joined as they leave, 32 columns at a time: to the epilogue, or to the parts of a split product.

template <class Sums>
__device__ __forceinline__ void leave_joined(const Params& p, const WorkTile& w, int number, int consumer, Sums& sums) {
    const int part = SPLIT_K ? number / (int)p.tiles : 0;
    const RowCoords at = row_coords(p, w, consumer, 0);
    #pragma unroll
    for (int block = 0; block < TILE_N / 32; ++block) {
        sums.pin_all();  // joined here and not all before: there are no registers for it
        Accum some[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) some[i] = sums.result(block * 16 + i);
        if constexpr (SPLIT_K) store_partials(p, part, fragment_index(w.tile, consumer, 0, block), some);
        else epilogue_store<1>(p, w, at, block, some);
    }
}
