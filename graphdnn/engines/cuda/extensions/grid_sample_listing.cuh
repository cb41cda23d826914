// Positions that meet a tile of the image, and a warp's part of the tile.

#include "grid_sample.cuh"

struct Listing {
    int lefts[THREADS], tops[THREADS];
    Index offsets[THREADS];  // of what their channels send back
    Compute rights[THREADS], bottoms[THREADS];

    __device__ __forceinline__ void put(int k, const Place& place, Index offset) {
        lefts[k] = place.left;
        tops[k] = place.top;
        rights[k] = place.right_share;
        bottoms[k] = place.bottom_share;
        offsets[k] = offset;
    }
    // Of position k for a pixel that it meets.
    __device__ __forceinline__ Compute weight(int k, int w, int h) const {
        return (w != lefts[k] ? rights[k] : Compute(1) - rights[k]) * (h != tops[k] ? bottoms[k] : Compute(1) - bottoms[k]);
    }
};

struct Part {
    int lane, row, left;
    int last;      // the last pack of channels that there is, counted from the block's first
    Index image;   // of dy, the block's first channel
    Index target;  // of dx, the same in the warp's row
};
