// Epilogue of split precision: combines the limb accumulators of 32 columns at a time, then stores them as results, or as
// partial sums where the kernel splits K.

#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "split_k_partials.cuh"
#include "split_k_tile.cuh"

template <class Accumulators>
__device__ __forceinline__ void epilogue_store_limbs(
    const Params& p, const WorkTile& w, int item, int warpgroup, Accumulators& accumulators
) {
    const int split = SPLIT_K ? item / (int)p.tiles : 0;
    const RowCoords rows = row_coords(p, w, warpgroup, 0);
    #pragma unroll
    for (int block = 0; block < TILE_N / 32; ++block) {
        accumulators.fence();  // keeps the compiler from combining all columns before the first store: registers would spill
        Accum combined[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) combined[i] = accumulators.result(block * 16 + i);
        if constexpr (SPLIT_K) store_partials(p, split, fragment_index(w.tile, warpgroup, 0, block), combined);
        else epilogue_store<1>(p, w, rows, block, combined);
    }
}
