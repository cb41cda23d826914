// Coordinates of a convolution as a matrix product with one gathered operand: what an index of the product stands for.
//
//   PIXEL    (n, spatial position)   CHANNEL   one channel   FILTER   (tap, channel)
//
// Offsets and spatial parts of an outer index and of an index of the sum add up. RESIDUES products differ in their sizes
// and starts, which are fields with an entry for each; the grid's z counts them. ARE_SHORT: indices are 32-bit numbers.

constexpr int PIXEL = 0, CHANNEL = 1, FILTER = 2;

constexpr int FIRST = 3 - SPATIAL;  // axes before it have one position

__device__ __forceinline__ int residue() { return RESIDUES > 1 ? (int)blockIdx.z : 0; }

// An index in the digits of its coordinates, the fastest first: (channel, taps) or (position, n).
struct Digits { int d[4]; };

template <int KIND> __device__ __forceinline__ Digits digits_of(long long index, const Params& p) {
    Digits found;
    unsigned long long rest = (unsigned long long)index;
    #pragma unroll
    for (int i = 0; i < 3; ++i) {
        const unsigned int size = (unsigned int)(KIND == PIXEL ? p.pixel_digits[3 * residue() + i] : p.tap_digits[3 * residue() + i]);
        if (ARE_SHORT || rest < (1ull << 32)) {
            found.d[i] = (int)((unsigned int)rest % size);
            rest = (unsigned int)rest / size;
        } else {
            found.d[i] = (int)(rest % size);
            rest /= size;
        }
    }
    found.d[3] = (int)rest;
    return found;
}

// Spatial digit of axis d, and the other coordinate.
template <int KIND> __device__ __forceinline__ int spatial(const Digits& at, int d) {
    return KIND == PIXEL ? at.d[2 - d] : at.d[3 - d];
}
template <int KIND> __device__ __forceinline__ int lane_of(const Digits& at) { return KIND == PIXEL ? at.d[3] : at.d[0]; }

// The gathered operand's part of an index: coordinates add up, and so do their offsets.
template <int KIND> __device__ __forceinline__ Offset gathered_part(const Digits& at, const Params& p, int (&u)[SPATIAL]) {
    Offset offset = (Offset)(lane_of<KIND>(at) * (KIND == PIXEL ? p.gathered_n : p.gathered_c));
    #pragma unroll
    for (int d = FIRST; d < 3; ++d) {
        u[d - FIRST] = KIND == PIXEL ? (int)(spatial<KIND>(at, d) * p.pixel_step[d] + p.pixel_start[3 * residue() + d])
                                     : (int)(spatial<KIND>(at, d) * p.tap_step[d]);
        offset += (Offset)(u[d - FIRST] * p.gathered_spatial[d]);
    }
    return offset;
}

// The plain operand's part of an index: w by (tap, channel), dy by pixel.
template <int KIND> __device__ __forceinline__ Offset plain_part(const Digits& at, const Params& p) {
    Offset offset = (Offset)(lane_of<KIND>(at) * p.plain_lane);
    #pragma unroll
    for (int d = FIRST; d < 3; ++d) offset += (Offset)(spatial<KIND>(at, d) * p.plain_spatial[d]);
    return offset;
}

// Coordinates of an output element: (n, g, channel, position), or (g, k, c, tap) for wgrad.
template <int KIND> __device__ __forceinline__ Digits output_digits(long long index, const Params& p) {
    if constexpr (KIND != CHANNEL) return digits_of<KIND>(index, p);
    Digits found;
    found.d[0] = (int)index;
    return found;
}

template <int KIND> __device__ __forceinline__ void output_coordinates(const Params& p, const Digits& digits, int (&at)[6]) {
    if constexpr (KIND == CHANNEL) {
        at[K_KIND == PIXEL ? 1 : 2] = digits.d[0];
    } else {
        at[KIND == PIXEL ? 0 : 2] = lane_of<KIND>(digits);
        #pragma unroll
        for (int d = 0; d < 3; ++d) {
            at[3 + d] = spatial<KIND>(digits, d);
            if (RESIDUES > 1) at[3 + d] = at[3 + d] * (int)p.pixel_pitch[d] + (int)p.first_pixel[3 * residue() + d];
        }
    }
}
