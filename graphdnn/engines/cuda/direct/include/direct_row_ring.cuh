// Geometry of the direct convolutions, and rows of an image on their way through shared memory.
//
// A kernel walks down the image in steps. A step reads IN_ROWS rows of the gathered operand and lets OUT_ROWS rows
// of the other side leave a window of WINDOW rows, the oldest first:
//
//   fprop (and wgrad)  IN_ROWS = stride   OUT_ROWS = 1        row u of the step meets window row k at tap  u + stride * (WINDOW-1-k)
//   dgrad              IN_ROWS = 1        OUT_ROWS = stride   the row of dy meets window row k at tap  k
//
// so every tap is known when the text is compiled and no product with a tap outside the filter is computed, strides
// included. Columns follow the same scheme inside a thread's tile of TW columns.

constexpr int BEFORE = DGRAD ? -((S - 1) / STRIDE_W) : 0;  // first column of dy that a tile reads
constexpr int IW = DGRAD ? (TW - 1) / STRIDE_W - BEFORE + 1 : (TW - 1) * STRIDE_W + S;
constexpr int STEP_W = DGRAD ? TW / STRIDE_W : TW * STRIDE_W;  // gathered columns from one tile to the next
constexpr int COLUMNS = (TILES - 1) * STEP_W + IW;             // of a block
constexpr int EXTRA = (R - 1) / STRIDE_H;                      // steps before the first row is complete
static_assert(!DGRAD || TW % STRIDE_W == 0, "a tile of dgrad starts at a multiple of the stride");

constexpr __host__ __device__ int row_tap(int u, int k) {
    const int tap = DGRAD ? k : u + STRIDE_H * (WINDOW - 1 - k);
    return tap < R ? tap : -1;
}

constexpr __host__ __device__ int column_tap(int i, int t) {
    const int tap = DGRAD ? t - (i + BEFORE) * STRIDE_W : i - t * STRIDE_W;
    return tap >= 0 && tap < S ? tap : -1;
}

// The gathered column that meets a thread's column t at tap s: the other way round. -1 where none does.
constexpr __host__ __device__ int tap_column(int s, int t) {
    return !DGRAD ? s + t * STRIDE_W : (t - s) % STRIDE_W == 0 ? (t - s) / STRIDE_W - BEFORE : -1;
}

// A ring of STEPS steps of ROWS rows, each WIDE columns of CHANNELS channels, PIXEL elements apart; T's channels come
// CHUNK at a time. Only the first COPIED columns are ever written.
template <class T, int ROWS, int WIDE, int CHANNELS, int CHUNK, int STEPS, int PIXEL = CHANNELS, int COPIED = WIDE>
struct Ring {
    static constexpr int PIECES = CHANNELS / CHUNK;
    static constexpr int COUNT = ROWS * COPIED * PIECES;
    static constexpr int TURNS = (COUNT + THREADS - 1) / THREADS;
    static constexpr int ELEMENTS = ROWS * WIDE * PIXEL;  // of one step
    static constexpr int BYTES = (STEPS * ELEMENTS * (int)sizeof(T) + 15) / 16 * 16;
    static_assert(CHANNELS % CHUNK == 0 && TURNS <= 32, "whole pieces, a bit for each");
    static_assert(PIXEL == CHANNELS || THREADS % PIECES == 0, "a thread's pieces are at even distances");
    static constexpr int TURN = PIXEL == CHANNELS ? THREADS * CHUNK : THREADS / PIECES * PIXEL;  // elements

    T* memory;
    const T* from;  // the next row to be copied, in the block's first column and channel
    long long stride_h;
    int rows, row;           // of the image, and the next to be copied
    int offset[TURNS];       // elements from there to this thread's piece
    unsigned int inside;     // which pieces lie inside the image's columns and channels

    __device__ __forceinline__ explicit Ring(void* memory) : memory((T*)memory) {}

    // The image, and the block's part: `column` is the first column, `channel` the first channel of `channels`.
    __device__ __forceinline__ void start(
        const T* image, long long stride_h, long long stride_w, int rows, int columns, int channels,
        int row, int column, int channel
    ) {
        from = image + row * stride_h + column * stride_w + channel;
        this->stride_h = stride_h;
        this->rows = rows;
        this->row = row;
        inside = 0;
        #pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const int index = (int)threadIdx.x + i * THREADS;
            const int piece = index % PIECES, at = index / PIECES % COPIED, u = index / (PIECES * COPIED);
            if (index < COUNT && (unsigned int)(column + at) < (unsigned int)columns && channel + piece * CHUNK < channels)
                inside |= 1u << i;
            offset[i] = u * (int)stride_h + at * (int)stride_w + piece * CHUNK;
        }
    }

    // Begins the copy of the next step.
    __device__ __forceinline__ void fetch(int slot) {
        const int mine = (int)threadIdx.x;
        T* const to = memory + slot * ELEMENTS +
            (PIXEL == CHANNELS ? mine * CHUNK : mine / PIECES * PIXEL + mine % PIECES * CHUNK);
        #pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const int index = (int)threadIdx.x + i * THREADS;
            const int u = ROWS == 1 ? 0 : index / (PIECES * COPIED);
            if (COUNT % THREADS == 0 || i + 1 < TURNS || index < COUNT)
                copy_async<CHUNK * (int)sizeof(T)>(
                    to + i * TURN + (COPIED == WIDE ? 0 : u * ((WIDE - COPIED) * PIXEL)), from + offset[i],
                    (inside >> i & 1u) != 0 && (unsigned int)(row + u) < (unsigned int)rows
                );
        }
        from += ROWS * stride_h;
        row += ROWS;
    }

    // Zeros in the columns that are not copied.
    __device__ __forceinline__ void clear() {
        constexpr int REST = WIDE - COPIED;
        if constexpr (REST > 0)
            for (int i = (int)threadIdx.x; i < STEPS * ROWS * REST * PIXEL; i += THREADS)
                memory[(i / (REST * PIXEL) * WIDE + COPIED) * PIXEL + i % (REST * PIXEL)] = T();
    }

    __device__ __forceinline__ const T* at(int slot, int u, int column, int channel) const {
        return memory + slot * ELEMENTS + (u * WIDE + column) * PIXEL + channel;
    }
};
