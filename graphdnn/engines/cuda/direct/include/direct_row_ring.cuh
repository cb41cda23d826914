// Geometry of the sliding-window convolutions, and the ring buffer of image rows in shared memory.
//
// A kernel slides down the image in steps. A step reads IN_ROWS rows of the image operand and completes OUT_ROWS
// rows of the output. The WINDOW output rows that are in progress stay in registers, the oldest first:
//
//   direction         IN_ROWS   OUT_ROWS   which row multiplies window row k, at which tap
//   fprop (and wgrad) stride    1          row u of the step, at tap u + stride * (WINDOW - 1 - k)
//   dgrad             1         stride     the row of dy, at tap k
//
// Every tap is a compile-time constant, so no product is computed for a tap outside the filter, with any stride.
// Columns follow the same scheme inside a thread's tile of TW columns.
//
// Required constants: R, S, STRIDE_H, STRIDE_W, DGRAD: the filter, its strides, the direction. TW: columns of a thread.
// TILES: tiles of a CTA along a row. IN_ROWS, OUT_ROWS, WINDOW: see above. THREADS: of a CTA.

#include "direct_copy.cuh"

constexpr int FIRST_COLUMN = DGRAD ? -((S - 1) / STRIDE_W) : 0;  // first column of dy that a tile reads
constexpr int IW = DGRAD ? (TW - 1) / STRIDE_W - FIRST_COLUMN + 1 : (TW - 1) * STRIDE_W + S;
constexpr int STEP_W = DGRAD ? TW / STRIDE_W : TW * STRIDE_W;  // image columns from one tile to the next
constexpr int COLUMNS = (TILES - 1) * STEP_W + IW;             // columns that a CTA reads
constexpr int WARMUP_STEPS = (R - 1) / STRIDE_H;                      // steps before the first output row is complete
static_assert(!DGRAD || TW % STRIDE_W == 0, "a tile of dgrad starts at a multiple of the stride");

constexpr __host__ __device__ int row_tap(int u, int k) {
    const int tap = DGRAD ? k : u + STRIDE_H * (WINDOW - 1 - k);
    return tap < R ? tap : -1;
}

constexpr __host__ __device__ int column_tap(int i, int t) {
    const int tap = DGRAD ? t - (i + FIRST_COLUMN) * STRIDE_W : i - t * STRIDE_W;
    return tap >= 0 && tap < S ? tap : -1;
}

// The inverse: the image column that a thread's column t reads at tap s, or -1 if there is none.
constexpr __host__ __device__ int tap_column(int s, int t) {
    return !DGRAD ? s + t * STRIDE_W : (t - s) % STRIDE_W == 0 ? (t - s) / STRIDE_W - FIRST_COLUMN : -1;
}

// A ring buffer of STEPS steps. A step has ROWS rows of ROW_COLUMNS pixels with CHANNELS channels, and adjacent pixels have a
// distance of PIXEL_STRIDE elements. A copy moves VEC_ELEMS channels. Copies fill the first COPIED_COLUMNS columns only.
template <class T, int ROWS, int ROW_COLUMNS, int CHANNELS, int VEC_ELEMS, int STEPS, int PIXEL_STRIDE = CHANNELS, int COPIED_COLUMNS = ROW_COLUMNS>
struct RowRing {
    static constexpr int PIXEL_VECS = CHANNELS / VEC_ELEMS;
    static constexpr int COUNT = ROWS * COPIED_COLUMNS * PIXEL_VECS;
    static constexpr int COPY_PASSES = (COUNT + THREADS - 1) / THREADS;
    static constexpr int ELEMENTS = ROWS * ROW_COLUMNS * PIXEL_STRIDE;  // elements of one step
    static constexpr int BYTES = (STEPS * ELEMENTS * (int)sizeof(T) + 15) / 16 * 16;
    static_assert(CHANNELS % VEC_ELEMS == 0 && COPY_PASSES <= 32, "whole vectors, and a bit of the mask for each");
    static_assert(PIXEL_STRIDE == CHANNELS || THREADS % PIXEL_VECS == 0, "a constant distance between the vectors of a thread");
    // Elements between two copies of a thread.
    static constexpr int PASS_ELEMENTS = PIXEL_STRIDE == CHANNELS ? THREADS * VEC_ELEMS : THREADS / PIXEL_VECS * PIXEL_STRIDE;

    T* memory;
    const T* source;  // the next row to copy, at the first column and channel of the CTA
    long long stride_h;
    int rows, row;           // rows of the image, and the next row to copy
    int offset[COPY_PASSES];       // elements from `source` to each vector of this thread
    unsigned int inside;     // bit i: vector i lies inside the columns and channels of the image

    __device__ __forceinline__ explicit RowRing(void* memory) : memory((T*)memory) {}

    // Selects an image and the CTA's region in it: `row`, `column` and `channel` are the first ones that it reads.
    __device__ __forceinline__ void begin_image(
        const T* image, long long stride_h, long long stride_w, int rows, int columns, int channels,
        int row, int column, int channel
    ) {
        source = image + row * stride_h + column * stride_w + channel;
        this->stride_h = stride_h;
        this->rows = rows;
        this->row = row;
        inside = 0;
        #pragma unroll
        for (int i = 0; i < COPY_PASSES; ++i) {
            const int index = (int)threadIdx.x + i * THREADS;
            const int vec = index % PIXEL_VECS, column_offset = index / PIXEL_VECS % COPIED_COLUMNS, u = index / (PIXEL_VECS * COPIED_COLUMNS);
            if (index < COUNT && (unsigned int)(column + column_offset) < (unsigned int)columns && channel + vec * VEC_ELEMS < channels)
                inside |= 1u << i;
            offset[i] = u * (int)stride_h + column_offset * (int)stride_w + vec * VEC_ELEMS;
        }
    }

    // Issues the copies of the next step into `stage`.
    __device__ __forceinline__ void load_step(int stage) {
        const int thread = (int)threadIdx.x;
        T* const destination = memory + stage * ELEMENTS +
            (PIXEL_STRIDE == CHANNELS ? thread * VEC_ELEMS : thread / PIXEL_VECS * PIXEL_STRIDE + thread % PIXEL_VECS * VEC_ELEMS);
        #pragma unroll
        for (int i = 0; i < COPY_PASSES; ++i) {
            const int index = (int)threadIdx.x + i * THREADS;
            const int u = ROWS == 1 ? 0 : index / (PIXEL_VECS * COPIED_COLUMNS);
            if (COUNT % THREADS == 0 || i + 1 < COPY_PASSES || index < COUNT)
                cp_async_zfill<VEC_ELEMS * (int)sizeof(T)>(
                    destination + i * PASS_ELEMENTS + (COPIED_COLUMNS == ROW_COLUMNS ? 0 : u * ((ROW_COLUMNS - COPIED_COLUMNS) * PIXEL_STRIDE)), source + offset[i],
                    (inside >> i & 1u) != 0 && (unsigned int)(row + u) < (unsigned int)rows
                );
        }
        source += ROWS * stride_h;
        row += ROWS;
    }

    // Writes zeros into the columns that no copy fills.
    __device__ __forceinline__ void clear_margin() {
        constexpr int MARGIN_COLUMNS = ROW_COLUMNS - COPIED_COLUMNS;
        if constexpr (MARGIN_COLUMNS > 0)
            for (int i = (int)threadIdx.x; i < STEPS * ROWS * MARGIN_COLUMNS * PIXEL_STRIDE; i += THREADS)
                memory[(i / (MARGIN_COLUMNS * PIXEL_STRIDE) * ROW_COLUMNS + COPIED_COLUMNS) * PIXEL_STRIDE + i % (MARGIN_COLUMNS * PIXEL_STRIDE)] = T();
    }

    __device__ __forceinline__ const T* row_ptr(int stage, int u, int column, int channel) const {
        return memory + stage * ELEMENTS + (u * ROW_COLUMNS + column) * PIXEL_STRIDE + channel;
    }
};
