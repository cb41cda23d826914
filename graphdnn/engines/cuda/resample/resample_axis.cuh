// Windows along one spatial axis: the element that an output's tap reads, and the outputs that read an element.
//
// Required constants (from the generator):
//   MODE: NEAREST, BILINEAR, MAXIMUM, AVERAGE_INCLUDING or AVERAGE_EXCLUDING; PADDING: NEG_INF_PAD, ZERO_PAD or EDGE_VAL_PAD.
//   SPATIAL: spatial axes, 1 to 3; CHANNELS_LAST: 1 for channels-last tensors.
//   FIXED: 1 if windows are small, so that their extents and strides are constants. Otherwise they are parameters.
//   SLOPE_0, SLOPE_1, SLOPE_2: strides of windows, 1 or more; TAPS_0, TAPS_1, TAPS_2: extents of windows, 1 or more; both are 1
//   along missing axes, and unused without FIXED.

enum { NEAREST, BILINEAR, MAXIMUM, AVERAGE_INCLUDING, AVERAGE_EXCLUDING };
enum { NEG_INF_PAD, ZERO_PAD, EDGE_VAL_PAD };

constexpr bool IS_POOLING = MODE >= MAXIMUM;
constexpr bool CLAMPS_TO_EDGE = PADDING == EDGE_VAL_PAD && MODE != AVERAGE_EXCLUDING;  // elements outside x are read as the edge
constexpr int RANK = 5, FIRST_AXIS = CHANNELS_LAST ? 1 : 2, MISSING_AXES = 3 - SPATIAL;

struct Tap {
    int source;  // an element of x, even if the tap is unused
    bool used;
    Compute weight;
};

__device__ __forceinline__ int floor_div(int a, int b) {
    const int quotient = a / b;
    return quotient - (quotient * b > a);
}

// Strides and sizes of small windows are compile-time constants.
__device__ __forceinline__ int slope(const Params& p, int axis) {
    if constexpr (FIXED) return axis == 0 ? SLOPE_0 : axis == 1 ? SLOPE_1 : SLOPE_2;
    else return (int)p.slope[axis];
}
__device__ __forceinline__ int taps(const Params& p, int axis) {
    if constexpr (FIXED) return axis == 0 ? TAPS_0 : axis == 1 ? TAPS_1 : TAPS_2;
    else return (int)p.taps[axis];
}

// The element that tap 0 of output o reads.
__device__ __forceinline__ int window_start(const Params& p, int axis, int o) {
    const int line = o * slope(p, axis) + (int)p.start[axis];
    if constexpr (IS_POOLING) return line;
    return floor_div(line, (int)p.unit[axis]);
}

__device__ __forceinline__ int tap_count(const Params& p, int axis) {
    if constexpr (MODE == NEAREST) return 1;
    else return taps(p, axis);
}

__device__ __forceinline__ Tap tap_of(const Params& p, int axis, int o, int t) {
    const int start = window_start(p, axis, o), element = start + t, last = (int)p.image[axis] - 1;
    Tap tap;
    tap.source = element < 0 ? 0 : element > last ? last : element;
    tap.used = CLAMPS_TO_EDGE || tap.source == element;
    tap.weight = (Compute)1;
    if constexpr (MODE == BILINEAR) {
        if (axis < MISSING_AXES) return tap;
        const int unit = (int)p.unit[axis], rest = o * slope(p, axis) + (int)p.start[axis] - start * unit;
        // In double the host computes 1 - rest / unit. In float both quotients round to the same value.
        if constexpr (same<Compute, double>) {
            const Compute fraction = (Compute)rest / (Compute)unit;
            tap.weight = t ? fraction : (Compute)1 - fraction;
        } else {
            tap.weight = (Compute)(t ? rest : unit - rest) / (Compute)unit;
        }
        tap.used = tap.used && tap.weight != (Compute)0;
    }
    return tap;
}

// The number of elements of x in the window of output o, along one axis.
__device__ __forceinline__ int elements_inside(const Params& p, int axis, int o) {
    const int start = window_start(p, axis, o), end = start + taps(p, axis), size = (int)p.image[axis];
    return (end < size ? end : size) - (start > 0 ? start : 0);
}

__device__ __forceinline__ Compute divisor(const Params& p, const int (&o)[3]) {
    if constexpr (MODE == AVERAGE_INCLUDING) return (Compute)p.volume;
    long long count = 1;
    #pragma unroll
    for (int axis = MISSING_AXES; axis < 3; ++axis) {
        const int inside = elements_inside(p, axis, o[axis]);
        count *= inside > 0 ? inside : 0;
    }
    return (Compute)(count > 0 ? count : 1);
}

// Outputs first..last may read element i along an axis. An output between them that skips the element has an empty tap range.
struct Range { int first, last; };

__device__ __forceinline__ Range reading_outputs(const Params& p, int axis, int i) {
    const int step = slope(p, axis), start = (int)p.start[axis], unit = IS_POOLING ? 1 : (int)p.unit[axis];
    const int last = (int)p.outputs[axis] - 1;
    Range range;
    range.first = -floor_div(start - (i - tap_count(p, axis) + 1) * unit, step);
    range.last = -floor_div(start - (i + 1) * unit, step) - 1;
    if (CLAMPS_TO_EDGE && i == 0) range.first = 0;
    if (CLAMPS_TO_EDGE && i == (int)p.image[axis] - 1) range.last = last;
    if (range.first < 0) range.first = 0;
    if (range.last > last) range.last = last;
    return range;
}

__device__ __forceinline__ Range reading_taps(const Params& p, int axis, int o, int i) {
    const int tap = i - window_start(p, axis, o), last = tap_count(p, axis) - 1;
    Range range = {tap, tap};
    if (CLAMPS_TO_EDGE && i == 0) range.first = 0;
    if (CLAMPS_TO_EDGE && i == (int)p.image[axis] - 1) range.last = last;
    if (range.first < 0) range.first = 0;
    if (range.last > last) range.last = last;
    return range;
}
