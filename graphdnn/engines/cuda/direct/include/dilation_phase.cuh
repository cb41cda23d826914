// Dilated filters: a filter meets every DILATION-th pixel only, so those whose coordinates leave the same remainder are an
// image of their own, in which taps are neighbours. Of an axis without dilation there is one, and all of this is constant.

// What a part's coordinates along an axis are. `own`: the side that sums or dy belong to; `met`: the gathered one.
struct Remainder {
    int own, met;  // a coordinate is its place in the part, times the dilation, and this more
    int shift;     // places from one on the own side to the first gathered one: padding is in it
};

__device__ __forceinline__ Remainder remainder_of(int own, int padding, int dilation) {
    const int first = own + padding;
    const int shift = first >= 0 ? first / dilation : -((dilation - 1 - first) / dilation);
    return {own, first - shift * dilation, shift};
}

// Places of a part along an axis of `size` pixels.
__device__ __forceinline__ int places(int size, int remainder, int dilation) {
    return (size - remainder + dilation - 1) / dilation;
}
