// Rows of an image of few channels in shared memory: see direct_stem.cu. Of three axes, a tile lies in one slice of the
// result; the rows of the T slices of the image that its taps read are kept one slice behind the other.

constexpr int WINDOW = S * C;
constexpr int OF_SLICE = (TP - 1) * STRIDE_H + R, IN_ROWS = T * OF_SLICE;
constexpr int STAGE = IN_ROWS * PITCH;              // elements
constexpr int FILTER_ROWS = T * R, FILTER_SIZE = FILTER_ROWS * WINDOW;  // and numbers of one channel of the result
// Elements from the first row that a pixel reads to that of a filter's row.
constexpr int row_at(int r) { return (r / R * OF_SLICE + r % R) * PITCH; }
// Copies of less than 4 bytes pass through registers: several of them wait together.
[[maybe_unused]] constexpr int AT_ONCE = CHUNK * sizeof(Element) < 4 ? 8 : 1;

// Where in memory's order a slice of the result is: its image, and its place there.
struct Slice { int n, d; };
__device__ __forceinline__ Slice slice_of(const Params& p, int number) {
    if constexpr (SPATIAL == 3) {
        const int n = (int)((unsigned int)number / (unsigned int)p.out_d);
        return {n, number - n * (int)p.out_d};
    } else {
        return {number, 0};
    }
}

// Coordinates of a result, by what the epilogue counts in.
struct Place { int at[SPATIAL + 2]; };
__device__ __forceinline__ Place place_of(const Params& p, int slice, int channel, int h, int w) {
    const Slice found = slice_of(p, slice);
    Place place;
    place.at[0] = found.n;
    place.at[1] = channel;
    place.at[2] = found.d;  // or h
    place.at[SPATIAL] = h;
    place.at[SPATIAL + 1] = w;
    return place;
}

// Number `at` of the window of filter row r, from the filter's first number.
__device__ __forceinline__ int place_in_filter(const Params& p, int r, int at) {
    const int s = at / C, c = at - s * C, slice = r / R, line = r - slice * R;
    return c * (int)p.filter_c + (FLIP ? T - 1 - slice : slice) * (int)p.filter_t + (FLIP ? R - 1 - line : line) * (int)p.filter_r +
           (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

// Rows of one tile, by so many threads: element `image column * C + BEFORE` of a row; zeros stay on both sides.
template <int COUNT = THREADS>
__device__ __forceinline__ void fetch(const Params& p, Element* rows, unsigned int tile, int thread = (int)threadIdx.x) {
    const Slice out = slice_of(p, (int)(tile / (unsigned int)p.row_tiles));
    const int h0 = (int)(tile % (unsigned int)p.row_tiles) * (TP * STRIDE_H) - (int)p.pad_h;
    const int pieces = (int)p.row_pieces;
    const Element* const image = p.x + out.n * p.x_n;
    #pragma unroll 1
    for (int r = thread / 32; r < IN_ROWS; r += COUNT / 32) {  // a warp takes a row
        const int slice = T > 1 ? r / OF_SLICE : 0, h = h0 + r - slice * OF_SLICE;
        bool inside = (unsigned int)h < (unsigned int)p.in_h;
        long long offset = h * p.x_h;
        if constexpr (SPATIAL == 3) {
            const int d = out.d * (int)p.stride_d - (int)p.pad_d + slice;
            inside = inside && (unsigned int)d < (unsigned int)p.in_d;
            offset += d * p.x_d;
        }
        const Element* const from = image + (inside ? offset : 0);
        #pragma unroll AT_ONCE
        for (int piece = thread % 32; piece < pieces; piece += 32)
            copy_async<CHUNK * (int)sizeof(Element)>(rows + r * PITCH + BEFORE + piece * CHUNK, from + piece * CHUNK, inside);
    }
}

// Zeros around the rows of all stages.
__device__ __forceinline__ void clear_margins(const Params& p, Element* rows) {
    const int inner = (int)p.row_pieces * CHUNK, outer = PITCH - inner;
    for (int i = threadIdx.x; i < STAGES * IN_ROWS * outer; i += THREADS) {
        const int r = i / outer, e = i - r * outer;
        rows[r * PITCH + (e < BEFORE ? e : e + inner)] = Element();
    }
}
