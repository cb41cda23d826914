// Depthwise convolution, fprop and dgrad: any filter, dilation and stride, one to three axes, either layout.
//
// Tile:       a thread owns V contiguous channels of TW neighbouring columns of one row. Neighbouring threads read the
//             same elements at nearly the same time, so most reads hit the L1 cache.
// Staging:    where HALO_IN_SMEM, a CTA first copies its halo tile to shared memory.
// Taps:       column taps are compile-time constants, TAP_UNROLL taps at a time. Rows and planes of taps are run-time loops.
// Layout:     channels are contiguous, with V channels in a load, or columns are (COLUMNS_CONTIGUOUS), with COLUMN_VEC columns
//             in a load.
//
// Required constants (from the generator): COLUMNS_CONTIGUOUS, DGRAD, FLIP, HALO_IN_SMEM, FILTER_IN_SMEM (filters lie in shared
// memory). S, TAP_UNROLL, STRIDE, DILATION, PAD: taps along the columns. V, TW, COLUMN_VEC, CHANNEL_THREADS, TILES, ROWS,
// THREADS: tiles. COPY_ELEMS: elements of a copy. VEC_WIDTH: elements of an epilogue call.

#include "pdl.cuh"
#include "direct_copy.cuh"

constexpr int CHANNELS = CHANNEL_THREADS * V;  // channels of a CTA
constexpr int NO_COLUMN = -(1 << 30);
constexpr int STEP = DGRAD ? TW / STRIDE : TW * STRIDE;  // image columns from one thread's tile to the next
static_assert(!DGRAD || TW % STRIDE == 0, "a tile of dgrad starts at a multiple of the stride");

constexpr __host__ __device__ int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// The columns that a CTA's tiles read, relative to the first tile's own column.
constexpr int LOWEST = DGRAD ? floor_div(PAD - (S - 1) * DILATION, STRIDE) : -PAD;
constexpr int HIGHEST = DGRAD ? floor_div(TW - 1 + PAD, STRIDE) : (TW - 1) * STRIDE + (S - 1) * DILATION - PAD;
constexpr int HALO_FIRST = floor_div(LOWEST, COLUMN_VEC) * COLUMN_VEC;
constexpr int HALO_COLUMNS = ((TILES - 1) * STEP + HIGHEST - HALO_FIRST + COLUMN_VEC) / COLUMN_VEC * COLUMN_VEC;
constexpr int COLUMN_STRIDE = COLUMNS_CONTIGUOUS ? 1 : CHANNELS;  // elements between neighbouring columns of the halo tile

// The image column that tap `s` of column `t` reads, relative to the tile's own column.
constexpr __host__ __device__ int column_of(int t, int s) {
    if (!DGRAD) return t * STRIDE + s * DILATION - PAD;
    const int numerator = t + PAD - s * DILATION;
    return numerator - floor_div(numerator, STRIDE) * STRIDE == 0 ? floor_div(numerator, STRIDE) : NO_COLUMN;
}
constexpr __host__ __device__ int lowest(int taps) {
    int low = 1 << 30;
    for (int s = 0; s < taps; ++s)
        for (int t = 0; t < TW; ++t)
            if (column_of(t, s) != NO_COLUMN && column_of(t, s) < low) low = column_of(t, s);
    return low == 1 << 30 ? 0 : low;
}
constexpr __host__ __device__ int highest(int taps) {
    int high = NO_COLUMN;
    for (int s = 0; s < taps; ++s)
        for (int t = 0; t < TW; ++t)
            if (column_of(t, s) > high) high = column_of(t, s);
    return high == NO_COLUMN ? lowest(taps) - 1 : high;
}
constexpr __host__ __device__ bool is_read(int column, int taps) {
    for (int s = 0; s < taps; ++s)
        for (int t = 0; t < TW; ++t)
            if (column_of(t, s) == column) return true;
    return false;
}

// The stored index of a tap. The kernel counts taps in the order of correlation.
__device__ __forceinline__ int stored_tap(int tap, int taps) { return FLIP ? taps - 1 - tap : tap; }

// Adds the products of TAPS taps of a row. `line` is the row's first column. `base` is the tile's own column, advanced past
// the taps that have been added.
template <int TAPS> __device__ __forceinline__ void multiply_row(
    const Params& p, const ImageElement* line, int base, const Accum* table, const Filter* filter, int tap,
    Accum (&accum)[TW][V]
) {
    constexpr int LOW = lowest(TAPS), HIGH = highest(TAPS), FIRST = floor_div(LOW, COLUMN_VEC) * COLUMN_VEC;
    constexpr int ROW_VECS = (HIGH - FIRST + COLUMN_VEC) / COLUMN_VEC;
    if constexpr (HIGH >= LOW) {
        constexpr int LOAD_ELEMS = COLUMNS_CONTIGUOUS ? COLUMN_VEC : V;  // elements of a load
        Vec<ImageElement, LOAD_ELEMS> vec[ROW_VECS];
        #pragma unroll
        for (int i = 0; i < ROW_VECS; ++i) {
            const int column = base + FIRST + i * COLUMN_VEC;
            bool is_used = false;
            #pragma unroll
            for (int e = 0; e < COLUMN_VEC; ++e) is_used |= is_read(FIRST + i * COLUMN_VEC + e, TAPS);
            if (!is_used) continue;
            if constexpr (HALO_IN_SMEM) {
                vec[i] = load_vec<LOAD_ELEMS>(line + column * COLUMN_STRIDE);
            } else {
                #pragma unroll
                for (int e = 0; e < LOAD_ELEMS; ++e) vec[i].data[e] = ImageElement();
                if ((unsigned int)column < (unsigned int)p.in_w)
                    vec[i] = load_vec_read_only<LOAD_ELEMS>(
                        line + (COLUMNS_CONTIGUOUS ? (Offset)column : column * (Offset)p.image_w));
            }
        }
        Accum x[ROW_VECS * COLUMN_VEC][V];
        #pragma unroll
        for (int i = 0; i < ROW_VECS * COLUMN_VEC; ++i)
            if (is_read(FIRST + i, TAPS)) {
                #pragma unroll
                for (int v = 0; v < V; ++v)
                    x[i][v] = widen<Accum>(vec[i / COLUMN_VEC].data[COLUMNS_CONTIGUOUS ? i % COLUMN_VEC : v]);
            }
        #pragma unroll
        for (int s = 0; s < TAPS; ++s) {
            Accum w[V];
            if constexpr (FILTER_IN_SMEM) {
                const Vec<Accum, V> vec = load_vec<V>(table + (tap + s) * CHANNELS);
                #pragma unroll
                for (int v = 0; v < V; ++v) w[v] = vec.data[v];
            } else {
                const int stored = stored_tap(tap + s, (int)p.taps);
                const Vec<Filter, V> vec = load_vec_read_only<V>(filter + stored * (int)p.filter_tap);
                #pragma unroll
                for (int v = 0; v < V; ++v) w[v] = widen<Accum>(vec.data[v]);
            }
            #pragma unroll
            for (int t = 0; t < TW; ++t)
                if (column_of(t, s) != NO_COLUMN) {
                    #pragma unroll
                    for (int v = 0; v < V; ++v) multiply_add(accum[t][v], x[column_of(t, s) - FIRST][v], w[v]);
                }
        }
    }
}

// Computes the image row or plane that tap `r` of output `o` reads. False if it lies outside the image or between strides.
__device__ __forceinline__ bool image_index(int o, int r, int stride, int dilation, int pad, int size, int& index) {
    index = DGRAD ? o + pad - r * dilation : o * stride + r * dilation - pad;
    if (DGRAD && stride > 1) {
        const int quotient_index = index / stride;  // the test below rejects negative indices
        if (index < 0 || quotient_index * stride != index) return false;
        index = quotient_index;
    }
    return (unsigned int)index < (unsigned int)size;
}

// The first image row that a CTA reads.
__device__ __forceinline__ int first_row(const Params& p, int row) {
    const int reach = ((int)p.filter_rows - 1) * (int)p.dilation_h;
    const int first = DGRAD ? (row + (int)p.pad_h - reach) / (int)p.stride_h : row * (int)p.stride_h - (int)p.pad_h;
    return first > 0 ? first : 0;  // division rounds a negative numerator up, to 0 at most
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) direct_depthwise(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    Accum* const table = (Accum*)memory;
    pdl_trigger();
    pdl_wait();

    unsigned int block = blockIdx.x;
    const int column_block = (int)(block % (unsigned int)p.column_blocks);
    block /= (unsigned int)p.column_blocks;
    const int row_block = (int)(block % (unsigned int)p.row_blocks);
    block /= (unsigned int)p.row_blocks;
    const int plane = (int)(block % (unsigned int)p.out_d);
    block /= (unsigned int)p.out_d;
    const int channel0 = (int)(block % (unsigned int)p.channel_blocks) * CHANNELS;
    const int n = (int)(block / (unsigned int)p.channel_blocks);

    const int rows = (int)p.filter_rows, planes = (int)p.filter_planes;
    const int halo_row = first_row(p, row_block * ROWS);
    ImageElement* const halo_tile = (ImageElement*)(memory + (FILTER_IN_SMEM ? (int)p.table_bytes : 0));
    if constexpr (HALO_IN_SMEM) {
        // Copies of a row of the halo tile.
        constexpr int ROW_COPIES = COLUMNS_CONTIGUOUS ? HALO_COLUMNS / COLUMN_VEC : HALO_COLUMNS * (CHANNELS / COPY_ELEMS);
        const int stop = halo_row + (int)p.halo_rows, count = (stop < (int)p.in_h ? stop : (int)p.in_h) - halo_row;
        const int first = column_block * TILES * STEP + HALO_FIRST;
        #pragma unroll 4
        for (int i = (int)threadIdx.x; i < (COLUMNS_CONTIGUOUS ? CHANNEL_THREADS : 1) * count * ROW_COPIES; i += THREADS) {
            const int index = i % ROW_COPIES, lines = i / ROW_COPIES, l = COLUMNS_CONTIGUOUS && CHANNEL_THREADS > 1 ? lines / count : 0;
            const int line = lines - l * count;
            const int column = COLUMNS_CONTIGUOUS ? index * COLUMN_VEC : index / (CHANNELS / COPY_ELEMS);
            const int c = COLUMNS_CONTIGUOUS ? l : index % (CHANNELS / COPY_ELEMS) * COPY_ELEMS;
            const bool inside = channel0 + c < (int)p.channels && (unsigned int)(first + column) < (unsigned int)p.in_w;
            ImageElement* const destination = halo_tile + ((l * (int)p.halo_rows + line) * HALO_COLUMNS + column) * COLUMN_STRIDE;
            cp_async_zfill<COPY_ELEMS * (int)sizeof(ImageElement)>(
                destination + (COLUMNS_CONTIGUOUS ? 0 : c),
                p.image + n * p.image_n + (channel0 + c) * p.image_c + (halo_row + line) * p.image_h +
                    (first + column) * p.image_w,
                inside
            );
        }
        cp_async_commit();
    }
    if constexpr (FILTER_IN_SMEM) {
        const int taps = (int)p.taps;
        for (int i = (int)threadIdx.x; i < taps * CHANNELS; i += THREADS) {
            const int c = i % CHANNELS, tap = stored_tap(i / CHANNELS, taps);
            const int r = tap / S, offset = r % rows * (int)p.filter_h + r / rows * (int)p.filter_d + tap % S * (int)p.filter_w;
            table[i] = channel0 + c < (int)p.channels
                ? widen<Accum>(p.filter[(channel0 + c) * (Offset)p.filter_c + offset]) : (Accum)0;
        }
    }
    if constexpr (HALO_IN_SMEM) cp_async_wait<0>();
    if constexpr (HALO_IN_SMEM || FILTER_IN_SMEM) __syncthreads();

    const int thread = (int)threadIdx.x;
    const int lane = COLUMNS_CONTIGUOUS ? thread / (TILES * ROWS) : thread % CHANNEL_THREADS;
    const int slot_index = COLUMNS_CONTIGUOUS ? thread % (TILES * ROWS) : thread / CHANNEL_THREADS;
    const int tile = column_block * TILES + slot_index % TILES, row = row_block * ROWS + slot_index / TILES;
    const int channel = channel0 + lane * V, column0 = tile * TW;
    if (lane >= CHANNEL_THREADS || slot_index >= TILES * ROWS || row >= (int)p.out_h || column0 >= (int)p.out_w || channel >= (int)p.channels)
        return;

    const ImageElement* const image = p.image + n * p.image_n + channel * p.image_c;
    const Filter* const filter = p.filter + channel * (Offset)p.filter_c;
    Accum accum[TW][V];
    #pragma unroll
    for (int t = 0; t < TW; ++t)
        #pragma unroll
        for (int v = 0; v < V; ++v) accum[t][v] = (Accum)0;

    #pragma unroll 1
    for (int d = 0; d < planes; ++d) {
        int depth;
        if (!image_index(plane, d, (int)p.stride_d, (int)p.dilation_d, (int)p.pad_d, (int)p.in_d, depth)) continue;
        #pragma unroll 1
        for (int r = 0; r < rows; ++r) {
            int height;
            if (!image_index(row, r, (int)p.stride_h, (int)p.dilation_h, (int)p.pad_h, (int)p.in_h, height)) continue;
            const ImageElement* const line = HALO_IN_SMEM
                ? halo_tile + ((COLUMNS_CONTIGUOUS ? lane * (int)p.halo_rows : 0) + height - halo_row) * (HALO_COLUMNS * COLUMN_STRIDE) -
                    (column_block * TILES * STEP + HALO_FIRST) * COLUMN_STRIDE + (COLUMNS_CONTIGUOUS ? 0 : lane * V)
                : image + depth * p.image_d + height * p.image_h;
            const int tap = (d * rows + r) * S;
            int base = tile * STEP;
            if constexpr (S > TAP_UNROLL) {
                constexpr int ADVANCE = DGRAD ? -(TAP_UNROLL * DILATION / STRIDE) : TAP_UNROLL * DILATION;
                #pragma unroll 1
                for (int s = 0; s < S / TAP_UNROLL; ++s, base += ADVANCE)
                    multiply_row<TAP_UNROLL>(p, line, base, table + lane * V, filter, tap + s * TAP_UNROLL, accum);
            } else {
                multiply_row<TAP_UNROLL>(p, line, base, table + lane * V, filter, tap, accum);
            }
            if constexpr (S % TAP_UNROLL != 0 && S > TAP_UNROLL)
                multiply_row<S % TAP_UNROLL>(p, line, base, table + lane * V, filter, tap + S / TAP_UNROLL * TAP_UNROLL, accum);
        }
    }

    if constexpr (COLUMNS_CONTIGUOUS) {
        #pragma unroll
        for (int t = 0; t < TW; t += VEC_WIDTH) {
            if (column0 + t >= (int)p.out_w) break;
            const int coord[6] = {n, channel, 0, plane, row, column0 + t};
            Accum acc[VEC_WIDTH];
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = accum[t + e][0];
            epilogue(p, coord, acc);
        }
    } else {
        #pragma unroll
        for (int t = 0; t < TW; ++t) {
            if (column0 + t >= (int)p.out_w) break;
            #pragma unroll
            for (int v = 0; v < V; v += VEC_WIDTH) {
                const int coord[6] = {n, channel + v, 0, plane, row, column0 + t};
                Accum acc[VEC_WIDTH];
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = accum[t][v + e];
                epilogue(p, coord, acc);
            }
        }
    }
}
