// grid_sample_boxes computes, for each piece of the grid, the bounding box of its positions in the image. grid_sample_image skips
// the pieces whose box does not overlap its tile.
//
// Tile:    a piece of PIECE_ROWS x PIECE_COLUMNS = 32 positions for a warp (grid_sample_pieces.cuh).
// Memory:  boxes are [image][piece], 16 bytes each.
// Threads: one position for each lane; the warp reduces minimum and maximum.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. PIECE_ROWS, PIECE_COLUMNS: extents of a piece; their product is 32.

#include "pdl.cuh"
#include "grid_sample.cuh"
#include "grid_sample_pieces.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_boxes(const __grid_constant__ Params p) {
    pdl_trigger();
    const unsigned int piece = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, pieces = (unsigned int)p.pieces;
    if (piece >= pieces * (unsigned int)p.images) return;
    const unsigned int n = piece / pieces;
    const Position position = position_in((int)(piece - n * pieces), p);
    pdl_wait();
    Place place;
    place.is_near = false;
    if (position.is_one) place = place_at(n, position.row, position.column, p);
    constexpr int FAR = 0x7fffffff;
    Box box = {FAR, FAR, -FAR, -FAR};
    if (place.is_near) box = {place.left, place.top, place.left, place.top};
    box.left = __reduce_min_sync(~0u, box.left);
    box.top = __reduce_min_sync(~0u, box.top);
    box.right = __reduce_max_sync(~0u, box.right);
    box.bottom = __reduce_max_sync(~0u, box.bottom);
    if (threadIdx.x % 32 == 0) ((Box*)p.boxes)[piece] = box;
}
