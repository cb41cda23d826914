// Image rows of a stem convolution in shared memory; see direct_stem.cu. With three spatial axes a tile lies in one
// depth slice of the result, and the stage has the rows of the T image slices that its taps read, one slice after another.
//
// Required constants: T, R, S, C: the filter and its channels. STRIDE_H, STRIDE_W. TILE_ROWS: output rows of a tile. PITCH:
// elements from row to row. LEFT_PAD_ELEMS: zeros in front of a row. COPY_ELEMS: elements of a copy. STAGES, THREADS, SPATIAL,
// FLIP.

#include "direct_copy.cuh"

constexpr int WINDOW = S * C;
constexpr int SLICE_ROWS = (TILE_ROWS - 1) * STRIDE_H + R, IN_ROWS = T * SLICE_ROWS;
constexpr int STAGE = IN_ROWS * PITCH;              // elements of a stage
constexpr int FILTER_ROWS = T * R, FILTER_SIZE = FILTER_ROWS * WINDOW;  // filter elements of one output channel
// Elements from the first row that a pixel reads to the row that filter row r reads.
constexpr int row_at(int r) { return (r / R * SLICE_ROWS + r % R) * PITCH; }
// Copies below 4 bytes pass through registers. Unrolling lets several of them be in flight.
[[maybe_unused]] constexpr int COPY_UNROLL = COPY_ELEMS * sizeof(Element) < 4 ? 8 : 1;

// A depth slice of the result: its image and its depth.
struct Slice { int n, d; };
__device__ __forceinline__ Slice slice_of(const Params& p, int number) {
    if constexpr (SPATIAL == 3) {
        const int n = (int)((unsigned int)number / (unsigned int)p.out_d);
        return {n, number - n * (int)p.out_d};
    } else {
        return {number, 0};
    }
}

// Coordinates of an output element in the order of the epilogue.
struct OutputCoord { int coord[SPATIAL + 2]; };
__device__ __forceinline__ OutputCoord output_coord(const Params& p, int slice, int channel, int h, int w) {
    const Slice slice_coord = slice_of(p, slice);
    OutputCoord output;
    output.coord[0] = slice_coord.n;
    output.coord[1] = channel;
    output.coord[2] = slice_coord.d;  // or h
    output.coord[SPATIAL] = h;
    output.coord[SPATIAL + 1] = w;
    return output;
}

// The filter offset of element `at` in the window of filter row r.
__device__ __forceinline__ int filter_offset(const Params& p, int r, int at) {
    const int s = at / C, c = at - s * C, slice = r / R, line = r - slice * R;
    return c * (int)p.filter_c + (FLIP ? T - 1 - slice : slice) * (int)p.filter_t + (FLIP ? R - 1 - line : line) * (int)p.filter_r +
           (FLIP ? S - 1 - s : s) * (int)p.filter_s;
}

// Copies the rows of one tile with COUNT threads. Image column w starts at element w * C + LEFT_PAD_ELEMS of a row.
template <int COUNT = THREADS>
__device__ __forceinline__ void load_image_rows(const Params& p, Element* rows, unsigned int tile, int thread = (int)threadIdx.x) {
    const Slice out = slice_of(p, (int)(tile / (unsigned int)p.row_tiles));
    const int h0 = (int)(tile % (unsigned int)p.row_tiles) * (TILE_ROWS * STRIDE_H) - (int)p.pad_h;
    const int row_vectors = (int)p.row_vectors;
    const Element* const image = p.x + out.n * p.x_n;
    #pragma unroll 1
    for (int r = thread / 32; r < IN_ROWS; r += COUNT / 32) {  // one warp copies a row
        const int slice = T > 1 ? r / SLICE_ROWS : 0, h = h0 + r - slice * SLICE_ROWS;
        bool inside = (unsigned int)h < (unsigned int)p.in_h;
        long long offset = h * p.x_h;
        if constexpr (SPATIAL == 3) {
            const int d = out.d * (int)p.stride_d - (int)p.pad_d + slice;
            inside = inside && (unsigned int)d < (unsigned int)p.in_d;
            offset += d * p.x_d;
        }
        const Element* const from = image + (inside ? offset : 0);
        #pragma unroll COPY_UNROLL
        for (int vec = thread % 32; vec < row_vectors; vec += 32)
            cp_async_zfill<COPY_ELEMS * (int)sizeof(Element)>(rows + r * PITCH + LEFT_PAD_ELEMS + vec * COPY_ELEMS, from + vec * COPY_ELEMS, inside);
    }
}

// Writes the zeros before and after the rows of all stages.
__device__ __forceinline__ void clear_margins(const Params& p, Element* rows) {
    const int inner = (int)p.row_vectors * COPY_ELEMS, outer = PITCH - inner;
    for (int i = threadIdx.x; i < STAGES * IN_ROWS * outer; i += THREADS) {
        const int r = i / outer, e = i - r * outer;
        rows[r * PITCH + (e < LEFT_PAD_ELEMS ? e : e + inner)] = Element();
    }
}
