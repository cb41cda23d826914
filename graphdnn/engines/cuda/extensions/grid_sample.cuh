// The position of a grid's (x, y), between -1 and 1, in an image, and its four neighbours.

struct Place {
    int left, top;
    Compute right_share, bottom_share;
    bool is_near;  // some neighbour is inside
};

__device__ __forceinline__ Place placed(Compute gx, Compute gy, const Params& p) {
    const Compute x = (gx + Compute(1)) * Compute(p.half_width), y = (gy + Compute(1)) * Compute(p.half_height);
    const Compute left = floor(x), top = floor(y);
    Place to;
    // False for NaN as well. The conversion of distant positions to integers would be undefined.
    to.is_near = left >= Compute(-1) && left < Compute(p.width) && top >= Compute(-1) && top < Compute(p.height);
    to.left = to.is_near ? (int)left : -2;
    to.top = to.is_near ? (int)top : -2;
    to.right_share = to.is_near ? x - left : Compute(0);
    to.bottom_share = to.is_near ? y - top : Compute(0);
    return to;
}

// The position of output (n, row, column).
__device__ __forceinline__ Place place_at(long long n, long long row, long long column, const Params& p) {
    const long long at = n * p.grid_stride[0] + row * p.grid_stride[1] + column * p.grid_stride[2];
    return placed(widen<Compute>(p.grid[at]), widen<Compute>(p.grid[at + p.grid_stride[3]]), p);
}

__device__ __forceinline__ bool is_inside(int row, int column, const Params& p) {
    return row >= 0 && row < (int)p.height && column >= 0 && column < (int)p.width;
}

// A contiguous vector, with a weight.
template <int V, class T> __device__ __forceinline__ void add_vec(const T* from, Compute weight, Compute (&sum)[V]) {
    T some[V];
    load<V>(from, Packed(), some);
    #pragma unroll
    for (int e = 0; e < V; ++e) sum[e] += widen<Compute>(some[e]) * weight;
}
