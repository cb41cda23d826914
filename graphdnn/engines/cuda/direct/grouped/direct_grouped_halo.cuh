// Output tiles and their halo tiles, for convolutions with groups of 8 to 64 channels.
//
// A halo tile is rows of pixels with the channels of the CTA's groups: PIXEL_CHUNKS chunks of 8 channels, plus an unused
// chunk where the count is even, so that neighbouring pixels start in different banks. Columns are ordered by their residue
// modulo the stride: all columns with residue 0, then residue 1, and so on.

#include "direct_copy.cuh"

template <int PIXEL_CHUNKS> constexpr int PIXEL_BYTES = (PIXEL_CHUNKS | 1) * 16;

struct TileCoord {
    int n, row, column;  // origin of an output tile
};

__device__ __forceinline__ TileCoord tile_coord(const Params& p, unsigned int tile) {
    const unsigned int across = (unsigned int)p.tiles_w, down = (unsigned int)p.tiles_h;
    const unsigned int column = tile % across, rem = tile / across, row = rem % down;
    return {(int)(rem / down) * (int)p.tile_images, (int)row * (int)p.tile_h, (int)column * (int)p.tile_w};
}

// An image tensor from the first channel of a CTA on: address, strides and extents.
struct Image {
    const Element* first;
    long long n, h, w;
    int images, height, width;
};

// The box that a halo tile covers. Elements outside the image are zero.
struct Box {
    int n, row, column, images, height, width;
};

// A warp copies a row at a time. A lane copies one chunk of several pixels.
template <int PIXEL_CHUNKS, int STRIDE, int WARPS>
__device__ __forceinline__ void load_lines(const Image& image, const Box& box, int residue_stride, unsigned char* destination) {
    constexpr int PIXELS_PER_PASS = 32 / PIXEL_CHUNKS;  // pixels that a warp copies at once
    const int lane = (int)threadIdx.x % 32, lines = box.images * box.height;
    const int pixel0 = lane / PIXEL_CHUNKS, chunk = lane - pixel0 * PIXEL_CHUNKS;
    if (pixel0 >= PIXELS_PER_PASS) return;
    const int column0 = box.column + pixel0;
    const Element* const first_source = image.first + box.n * image.n + column0 * image.w + chunk * 8;
    int n = 0, row = (int)threadIdx.x / 32;  // row of the halo tile
    const int step = PIXELS_PER_PASS * (int)image.w, pitch = residue_stride * (STRIDE * PIXEL_BYTES<PIXEL_CHUNKS>);
    #pragma unroll 1
    for (int line = row; line < lines; line += WARPS, row += WARPS) {
        while (row >= box.height) row -= box.height, ++n;
        const bool is_inside = (unsigned int)(box.row + row) < (unsigned int)image.height && box.n + n < image.images;
        const Element* source = first_source + n * image.n + (box.row + row) * image.h;
        unsigned char* const line_start = destination + line * pitch + chunk * 16;
        #pragma unroll 4
        for (int column = pixel0; column < box.width; column += PIXELS_PER_PASS) {
            const bool is_inside_column = is_inside && (unsigned int)(column0 + column - pixel0) < (unsigned int)image.width;
            const int slot = column % STRIDE * residue_stride + column / STRIDE;
            cp_async_zfill<16>(line_start + slot * PIXEL_BYTES<PIXEL_CHUNKS>, is_inside_column ? source : image.first, is_inside_column);
            source += step;
        }
    }
}
