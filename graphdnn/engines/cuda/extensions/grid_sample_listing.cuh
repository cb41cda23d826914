// Positions that overlap a tile of the image, and a warp's part of the tile.

#include "grid_sample.cuh"

struct Listing {
    int lefts[THREADS], tops[THREADS];
    Index offsets[THREADS];  // offsets of their gradients
    Compute rights[THREADS], bottoms[THREADS];

    __device__ __forceinline__ void put(int k, const Place& place, Index offset) {
        lefts[k] = place.left;
        tops[k] = place.top;
        rights[k] = place.right_share;
        bottoms[k] = place.bottom_share;
        offsets[k] = offset;
    }
    // The weight of position k for a pixel that it overlaps.
    __device__ __forceinline__ Compute weight(int k, int w, int h) const {
        return (w != lefts[k] ? rights[k] : Compute(1) - rights[k]) * (h != tops[k] ? bottoms[k] : Compute(1) - bottoms[k]);
    }
};

struct Part {
    int lane, row, left;
    int last;  // the last existing vector of channels, counted from the CTA's first
    Index image;  // offset in dy of the CTA's first channel
    Index target;  // offset in dx of the same channel, in the warp's row
};
