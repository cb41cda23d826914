// Filter gradient of groups of 8 to 64 channels on tensor cores of warps: the products of a tile, and how sums leave.
//
// A product's rows are two chunks of 8 channels of x, each of one tap or of two, its columns 8 channels of dy of the same
// group, and its depth 16 pixels: nothing is multiplied with another group's channels. Both operands are turned as they
// are read. A block takes the channels of GROUPS groups and goes through tiles of dy, each with the patch of x under it,
// which arrive in shared memory while earlier ones are multiplied; its warps have a group each, SHARES of them its rows,
// TURNS of them its pixels. All sums of a block stay in registers.
//
// Pixels follow each other, whichever lines they are in, and each tap reads its own; or (LINES > 1) warps walk down the lines of
// 16 columns: what they read of a line of x meets all lines of dy whose taps reach it, which stay in registers so long.
//
// From a pixel of x to its neighbour are PIXEL bytes, of dy RESULT. What the copy unit brings lies in rows of at most 128 bytes,
// their 16-byte parts exchanged; wider pixels are several such rows, a box apart.

constexpr int IN_CHUNKS = IN / 8, OUT_CHUNKS = OUT / 8, WINDOW = R * S * IN, CHUNKS = WINDOW / 8;
constexpr int ROW_CHUNKS = CHUNKS / LINES;
constexpr int OWN = ((ROW_CHUNKS + 1) / 2 + SHARES - 1) / SHARES;  // products side by side, of a warp
constexpr int WARPS = GROUPS * SHARES * TURNS, THREADS = 32 * WARPS;
constexpr int OF_LINE = OWN * OUT_CHUNKS * 4, SUMS = LINES * OF_LINE;
typedef float Sums[LINES][OWN][OUT_CHUNKS][4];
static_assert(LINES == 1 || (LINES == R && STRIDE_H == 1 && DILATION_H == 1), "lines that follow each other");

__device__ __forceinline__ float& nth(Sums& sum, int i) {
    return sum[i / OF_LINE][i / (OUT_CHUNKS * 4) % OWN][i / 4 % OUT_CHUNKS][i % 4];
}

// What a warp has.
struct Duty {
    int lane, group, share, pipe;
};

__device__ __forceinline__ Duty duty_of(int warp) {
    return {(int)threadIdx.x % 32, warp % GROUPS, warp / GROUPS % SHARES, warp / (GROUPS * SHARES)};
}

// Of a tile: the part that the images have.
struct __align__(16) Part {
    int columns, count, inverse;  // `inverse`: 2^16 / columns, rounded up, divides the pixels of a tile
    int high, between;            // lines of x between the images of a tile, beside those of the strides
    int images;
};

__device__ __forceinline__ Part part_of(const Params& p, const Corner& corner) {
    const auto least = [](int a, int b) { return a < b ? a : b; };
    const int columns = least((int)p.tile_w, (int)p.out_w - corner.column);
    const int rows = least((int)p.tile_h, (int)p.out_h - corner.row);
    const int images = least((int)p.tile_images, (int)p.images - corner.n);
    // Several images: all of each.
    return {columns, images * rows * columns, (65535 + columns) / columns, rows, (int)p.patch_h - rows * STRIDE_H,
            images};
}

// Parts of 16 bytes as the copy unit exchanges them: by the number of the row.
template <int BYTES> __device__ __forceinline__ int exchanged(int at) {
    return EXCHANGED && (BYTES == 32 || BYTES == 64 || BYTES == 128) ? at ^ (at >> 3 & (BYTES - 16)) : at;
}

// Where this lane's chunks lie, from a pixel's place on. `pitch`: of a line; `apart`: of pixels whose numbers leave another
// remainder by the stride.
__device__ __forceinline__ void place_chunks(const Params& p, const Duty& duty, int pitch, int apart, int (&offset)[OWN]) {
    const int of_group = duty.group * (IN * 2), first = of_group / PIXEL * (int)p.patch_half + of_group % PIXEL;
    #pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int chunk = (duty.share * OWN + i) * 2 + duty.lane / 8 % 2, tap = chunk / IN_CHUNKS;
        const int row = tap / S * DILATION_H, column = tap % S * DILATION_W;
        const int at = row * pitch + column / STRIDE_W * PIXEL + column % STRIDE_W * apart + chunk % IN_CHUNKS * 16;
        offset[i] = chunk < ROW_CHUNKS ? at + first : first;
    }
}

struct Place {
    bool is_there;
    int x, dy;  // bytes
};

__device__ __forceinline__ Place place_of(const Params& p, const Part& part, int pixel, int pitch) {
    const int line = pixel * part.inverse >> 16, column = pixel - line * part.columns;
    int image = 0;
    if (p.tile_images > 1) image = line / part.high;
    return {pixel < part.count, (line * STRIDE_H + image * part.between) * pitch + column * PIXEL,
            (line * (int)p.tile_w + column) * RESULT};
}

__device__ __forceinline__ void multiply_pixels(
    const Params& p, const Duty& duty, const Part& part, const unsigned char* memory, int patch, int results, int zeros, int pitch,
    const int (&offset)[OWN], Sums& sum
) {
    #pragma unroll 1
    for (int first = duty.pipe * 16; first < part.count; first += TURNS * 16) {
        const Place rows = place_of(p, part, first + duty.lane / 16 * 8 + duty.lane % 8, pitch);
        const Place columns = place_of(p, part, first + duty.lane % 16, pitch);
        unsigned int b[(OUT_CHUNKS + 1) / 2][4];
        #pragma unroll
        for (int j = 0; j < OUT_CHUNKS; j += 2) {
            const int at = results + columns.dy + (j + 1 < OUT_CHUNKS ? j + duty.lane / 16 : j) * 16;
            load_matrices<true>(b[j / 2], memory, columns.is_there ? exchanged<RESULT>(at) : zeros);
        }
        #pragma unroll
        for (int i = 0; i < OWN; ++i) {
            unsigned int a[4];
            load_matrices<true>(a, memory, rows.is_there ? exchanged<PIXEL>(patch + rows.x + offset[i]) : zeros);
            #pragma unroll
            for (int j = 0; j < OUT_CHUNKS; ++j)
                warp_product<Element, true>(
                    sum[0][i][j], a[0], a[1], a[2], a[3], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]
                );
        }
    }
}

// Eight columns of an image, of a lane that reads one of them: where they begin.
__device__ __forceinline__ Place column_of(const Params& p, const Part& part, int eight, int column, int pitch) {
    const int of_line = (part.columns + 7) / 8, image = eight / of_line, at = (eight - image * of_line) * 8 + column;
    return {image < part.images && at < part.columns, image * (int)p.patch_h * pitch + at * PIXEL,
            (image * (int)(p.tile_h * p.tile_w) + at) * RESULT};
}

__device__ __forceinline__ void multiply_lines(
    const Params& p, const Duty& duty, const Part& part, const unsigned char* memory, int patch, int results, int zeros, int pitch,
    const int (&offset)[OWN], Sums& sum
) {
    const int eights = part.images * ((part.columns + 7) / 8), line_bytes = (int)p.tile_w * RESULT;
    #pragma unroll 1
    for (int first = 2 * duty.pipe; first < eights; first += 2 * TURNS) {
        const Place rows = column_of(p, part, first + duty.lane / 16, duty.lane % 8, pitch);
        const Place columns = column_of(p, part, first + duty.lane / 8 % 2, duty.lane % 8, pitch);
        int x = patch + rows.x, dy = results + columns.dy;
        unsigned int b[LINES][(OUT_CHUNKS + 1) / 2][4];
        // A line of x, and that of dy beside it, which later lines of x meet again. Where lines of dy end, nothing is
        // multiplied: zeros in their place would meet what is real in the image.
        const auto walk = [&](int line, int k, bool is_edge) {
            if (!is_edge || line < part.high)
                #pragma unroll
                for (int j = 0; j < OUT_CHUNKS; j += 2) {
                    const int at = dy + (j + 1 < OUT_CHUNKS ? j + duty.lane / 16 : j) * 16;
                    load_matrices<true>(b[k][j / 2], memory, columns.is_there ? exchanged<RESULT>(at) : zeros);
                }
            #pragma unroll
            for (int i = 0; i < OWN; ++i) {
                unsigned int a[4];
                load_matrices<true>(a, memory, rows.is_there ? exchanged<PIXEL>(x + offset[i]) : zeros);
                #pragma unroll
                for (int r = 0; r < LINES; ++r) {
                    if (is_edge && (line < r || line - r >= part.high)) continue;
                    const auto& with = b[(k + LINES - r) % LINES];
                    #pragma unroll
                    for (int j = 0; j < OUT_CHUNKS; ++j)
                        warp_product<Element, true>(
                            sum[r][i][j], a[0], a[1], a[2], a[3], with[j / 2][j % 2 * 2], with[j / 2][j % 2 * 2 + 1]
                        );
                }
            }
            x += pitch, dy += line_bytes;
        };
        const int all = part.high + LINES - 1;
        #pragma unroll 1
        for (int line = 0; line < all; line += LINES) {
            const bool is_edge = line < LINES - 1 || line + LINES > part.high;
            if (is_edge) {
                #pragma unroll
                for (int k = 0; k < LINES; ++k)
                    if (line + k < all) walk(line + k, k, true);
            } else {
                #pragma unroll
                for (int k = 0; k < LINES; ++k) walk(line + k, k, false);
            }
        }
    }
}

// `patch` and `results`: where a tile lies; `zeros`: 16 bytes of them.
__device__ __forceinline__ void multiply_tile(
    const Params& p, const Duty& duty, const Part& part, const unsigned char* memory, int patch, int results, int zeros, int pitch,
    const int (&offset)[OWN], Sums& sum
) {
    const int of_group = duty.group * (OUT * 2);
    results += of_group / RESULT * (int)p.results_half + of_group % RESULT;
    if constexpr (LINES > 1) multiply_lines(p, duty, part, memory, patch, results, zeros, pitch, offset, sum);
    else multiply_pixels(p, duty, part, memory, patch, results, zeros, pitch, offset, sum);
}

// Turns of the pixels, in order, then the block's part: a line for each channel of dy, of the numbers of its window.
__device__ __forceinline__ void leave(const Params& p, const Duty& duty, unsigned char* memory, int slab, int part, Sums& sum) {
    if constexpr (TURNS > 1) {
        float* const exchange = (float*)memory + (duty.share * GROUPS + duty.group) * (32 * SUMS) + duty.lane;
        #pragma unroll 1
        for (int from = 1; from < TURNS; ++from) {
            __syncthreads();
            if (duty.pipe == from)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) exchange[i * 32] = nth(sum, i);
            __syncthreads();
            if (duty.pipe == 0)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) nth(sum, i) += exchange[i * 32];
        }
    }
    if (duty.pipe != 0) return;
    const long long channels = p.channels, channel = (slab * GROUPS + duty.group) * OUT + duty.lane % 4 * 2;
    float* const to = p.partial + (part * channels + channel) * WINDOW + duty.lane / 4;
    #pragma unroll
    for (int i = 0; i < SUMS; ++i) {
        const int chunk = (duty.share * OWN + i / (OUT_CHUNKS * 4) % OWN) * 2 + i / 2 % 2;
        const int at = (i / OF_LINE * ROW_CHUNKS + chunk) * 8, k = i / 4 % OUT_CHUNKS * 8 + i % 2;
        if (chunk < ROW_CHUNKS) to[k * WINDOW + at] = nth(sum, i);
    }
}

__device__ __forceinline__ void clear(Sums& sum) {
    #pragma unroll
    for (int i = 0; i < SUMS; ++i) nth(sum, i) = 0.0f;
}
