// Coordinates of an implicit GEMM: what an index of the GEMM stands for.
//
//   PIXEL    (n, spatial position)   CHANNEL   one channel   FILTER   (tap, channel)
//
// The offsets and spatial coordinates of an outer index and of a k index add up to those of an element. A strided dgrad has
// RESIDUES GEMMs, counted by the grid's z; fields that differ among them are arrays. ARE_SHORT: indices are 32-bit numbers.

constexpr int PIXEL = 0, CHANNEL = 1, FILTER = 2;

constexpr int FIRST = 3 - SPATIAL;  // earlier spatial axes have one position

__device__ __forceinline__ int residue() { return RESIDUES > 1 ? (int)blockIdx.z : 0; }

// An index in mixed radix, fastest digit first: (channel, taps) or (position, n).
struct Digits { int d[4]; };

template <int KIND> __device__ __forceinline__ Digits digits_of(long long index, const Params& p) {
    Digits result;
    unsigned long long rem = (unsigned long long)index;
    #pragma unroll
    for (int i = 0; i < 3; ++i) {
        const unsigned int size = (unsigned int)(KIND == PIXEL ? p.pixel_digits[3 * residue() + i] : p.tap_digits[3 * residue() + i]);
        if (ARE_SHORT || rem < (1ull << 32)) {
            result.d[i] = (int)((unsigned int)rem % size);
            rem = (unsigned int)rem / size;
        } else {
            result.d[i] = (int)(rem % size);
            rem /= size;
        }
    }
    result.d[3] = (int)rem;
    return result;
}

// The spatial digit of axis d; and n for pixels, the channel for filters.
template <int KIND> __device__ __forceinline__ int spatial(const Digits& at, int d) {
    return KIND == PIXEL ? at.d[2 - d] : at.d[3 - d];
}
template <int KIND> __device__ __forceinline__ int nc_of(const Digits& at) { return KIND == PIXEL ? at.d[3] : at.d[0]; }

// An index's contribution to the offset and to the spatial coordinates `u` of the im2col operand.
template <int KIND> __device__ __forceinline__ Offset im2col_offset(const Digits& at, const Params& p, int (&u)[SPATIAL]) {
    Offset offset = (Offset)(nc_of<KIND>(at) * (KIND == PIXEL ? p.im2col_n : p.im2col_c));
    #pragma unroll
    for (int d = FIRST; d < 3; ++d) {
        u[d - FIRST] = KIND == PIXEL ? (int)(spatial<KIND>(at, d) * p.traversal_stride[d] + p.pixel_start[3 * residue() + d])
                                     : (int)(spatial<KIND>(at, d) * p.dilation[d]);
        offset += (Offset)(u[d - FIRST] * p.im2col_spatial[d]);
    }
    return offset;
}

// An index's contribution to the offset of the dense operand: w by (tap, channel), dy by pixel.
template <int KIND> __device__ __forceinline__ Offset dense_offset(const Digits& at, const Params& p) {
    Offset offset = (Offset)(nc_of<KIND>(at) * p.dense_nc);
    #pragma unroll
    for (int d = FIRST; d < 3; ++d) offset += (Offset)(spatial<KIND>(at, d) * p.dense_spatial[d]);
    return offset;
}

// Coordinates of an output element: (n, g, channel, position), or (g, k, c, tap) for wgrad.
template <int KIND> __device__ __forceinline__ Digits output_digits(long long index, const Params& p) {
    if constexpr (KIND != CHANNEL) return digits_of<KIND>(index, p);
    Digits result;
    result.d[0] = (int)index;
    return result;
}

template <int KIND> __device__ __forceinline__ void output_coordinates(const Params& p, const Digits& digits, int (&at)[6]) {
    if constexpr (KIND == CHANNEL) {
        at[K_KIND == PIXEL ? 1 : 2] = digits.d[0];
    } else {
        at[KIND == PIXEL ? 0 : 2] = nc_of<KIND>(digits);
        #pragma unroll
        for (int d = 0; d < 3; ++d) {
            at[3 + d] = spatial<KIND>(digits, d);
            if (RESIDUES > 1) at[3 + d] = at[3 + d] * (int)p.out_stride[d] + (int)p.first_pixel[3 * residue() + d];
        }
    }
}
