// Input tile of one channel: its loads from memory and its transform.

#include "winograd_algorithm.cuh"
#include "winograd_tile.cuh"

constexpr int XI = ALPHA * ALPHA;

template <bool IS_LONG> struct Bits { typedef unsigned int type; };
template <> struct Bits<true> { typedef unsigned long long type; };
using InsideMask = typename Bits<(XI > 32)>::type;  // a bit for each element of a tile

// The address of a tile's first element, and a mask of its elements that lie inside the image.
struct TileSource {
    const char* from;
    InsideMask inside;
    int channel;
};

__device__ __forceinline__ TileSource tile_source(const Params& p, long long index, int channel) {
    TileSource result = {(const char*)p.image, 0, channel};
    if (index >= p.tiles) return result;
    const Tile tile = tile_of(p, index);
    const int h0 = tile.p * M - (int)p.pre[0], w0 = tile.q * M - (int)p.pre[1];
    #pragma unroll
    for (int i = 0; i < XI; ++i) {
        const bool is_inside = (unsigned int)(h0 + i / ALPHA) < (unsigned int)p.image_size[0] &&
                               (unsigned int)(w0 + i % ALPHA) < (unsigned int)p.image_size[1];
        result.inside |= (InsideMask)is_inside << i;
    }
    const long long offset = tile.n * p.image_n + channel * p.image_c + h0 * p.image_h + w0 * p.image_w;
    result.from += offset * (int)sizeof(Image);
    return result;
}

// Load a tile. Addresses are computed by additions only, as the load runs beside the multiply-adds of winograd_product.
__device__ __forceinline__ void load_tile(const Params& p, const TileSource& source, Image (&d)[XI]) {
    const InsideMask inside = source.channel < p.channels ? source.inside : (InsideMask)0;
    const char* row = source.from;
    #pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
        const char* at = row;
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) {
            d[i * ALPHA + j] = Image{};
            if (inside >> (i * ALPHA + j) & 1) d[i * ALPHA + j] = load_vec_read_only<1>((const Image*)at).data[0];
            at += p.image_w * (int)sizeof(Image);
        }
        row += p.image_h * (int)sizeof(Image);
    }
}

// v = B^T d B: element(i) returns element i of the tile d; put(i, value) stores component i of v.
template <class Element, class Put> __device__ __forceinline__ void input_transform(Element element, Put put) {
    float v[XI];
    #pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
        float in[ALPHA], out[ALPHA];
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) in[i] = element(i * ALPHA + j);
        input_transform_1d(in, out);
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) v[i * ALPHA + j] = out[i];
    }
    #pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
        float in[ALPHA], out[ALPHA];
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) in[j] = v[i * ALPHA + j];
        input_transform_1d(in, out);
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) put(i * ALPHA + j, out[j]);
    }
}
