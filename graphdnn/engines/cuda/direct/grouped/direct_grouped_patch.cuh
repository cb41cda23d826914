// Tiles of images and the patches under them, of the kernels of narrow groups.
//
// A patch is lines of pixels, of each the channels of a block's groups: WIDE chunks of 8, and one that is left out where that
// makes their number odd, so that neighbours are in different banks. Pixels that lie STRIDE apart are neighbours: first
// every first one of a line, then every second ...

template <int WIDE> constexpr int PIXEL_BYTES = (WIDE | 1) * 16;

struct Corner {
    int n, row, column;  // of the output
};

__device__ __forceinline__ Corner corner_of(const Params& p, unsigned int tile) {
    const unsigned int across = (unsigned int)p.tiles_w, down = (unsigned int)p.tiles_h;
    const unsigned int column = tile % across, rest = tile / across, row = rest % down;
    return {(int)(rest / down) * (int)p.tile_images, (int)row * (int)p.tile_h, (int)column * (int)p.tile_w};
}

// An image from the first channel of a block on: where it lies, and its size.
struct Image {
    const Element* first;
    long long n, h, w;
    int images, height, width;
};

// Which part of it a patch is; what lies outside is zero.
struct Cut {
    int n, row, column, images, high, wide;
};

// A warp copies lines; in each, a lane stays in its chunk and goes from pixel to pixel.
template <int WIDE, int STRIDE, int WARPS>
__device__ __forceinline__ void fetch_lines(const Image& image, const Cut& cut, int apart, unsigned char* to) {
    constexpr int ACROSS = 32 / WIDE;  // pixels at once
    const int lane = (int)threadIdx.x % 32, lines = cut.images * cut.high;
    const int pixel0 = lane / WIDE, chunk = lane - pixel0 * WIDE;
    if (pixel0 >= ACROSS) return;
    const int column0 = cut.column + pixel0;
    const Element* const corner_from = image.first + cut.n * image.n + column0 * image.w + chunk * 8;
    int n = 0, row = (int)threadIdx.x / 32;  // of the patch
    const int step = ACROSS * (int)image.w, pitch = apart * (STRIDE * PIXEL_BYTES<WIDE>);
    #pragma unroll 1
    for (int line = row; line < lines; line += WARPS, row += WARPS) {
        while (row >= cut.high) row -= cut.high, ++n;
        const bool is_there = (unsigned int)(cut.row + row) < (unsigned int)image.height && cut.n + n < image.images;
        const Element* from = corner_from + n * image.n + (cut.row + row) * image.h;
        unsigned char* const here = to + line * pitch + chunk * 16;
        #pragma unroll 4
        for (int column = pixel0; column < cut.wide; column += ACROSS) {
            const bool inside = is_there && (unsigned int)(column0 + column - pixel0) < (unsigned int)image.width;
            const int slot = column % STRIDE * apart + column / STRIDE;
            copy_async<16>(here + slot * PIXEL_BYTES<WIDE>, inside ? from : image.first, inside);
            from += step;
        }
    }
}
