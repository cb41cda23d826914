// Dilation phases. A filter with dilation D reads every D-th pixel, so the pixels with equal coordinate modulo D form
// an image of their own, and the taps are neighbours in that image. An axis without dilation has one phase, and the
// compiler folds this code to constants.

// One axis. coordinate = index within the phase * dilation + phase, for the output (or dy) and for the image operand.
struct DilationPhase {
    int out_phase, image_phase;  // coordinates modulo the dilation
    int shift;     // first image index minus the output index; it includes the padding
};

__device__ __forceinline__ DilationPhase dilation_phase(int out_phase, int padding, int dilation) {
    const int first = out_phase + padding;
    const int shift = first >= 0 ? first / dilation : -((dilation - 1 - first) / dilation);
    return {out_phase, first - shift * dilation, shift};
}

// The number of pixels of a phase along an axis of `size` pixels.
__device__ __forceinline__ int phase_extent(int size, int phase, int dilation) {
    return (size - phase + dilation - 1) / dilation;
}
