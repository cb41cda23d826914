// Input tile of one channel: its loads from memory and its transform.

#include "winograd_algorithm.cuh"
#include "winograd_tile.cuh"

constexpr int XI = ALPHA * ALPHA;

template <bool IS_LONG> struct Bits { typedef unsigned int type; };
template <> struct Bits<true> { typedef unsigned long long type; };
using Inside = typename Bits<(XI > 32)>::type;  // a bit for each element of a tile

// Where a tile lies in the image, and which of its elements are no padding.
struct Source {
    const char* from;
    Inside inside;
    int channel;
};

__device__ __forceinline__ Source source_of(const Params& p, long long index, int channel) {
    Source found = {(const char*)p.image, 0, channel};
    if (index >= p.tiles) return found;
    const Tile tile = tile_of(p, index);
    const int h0 = tile.p * M - (int)p.pre[0], w0 = tile.q * M - (int)p.pre[1];
    #pragma unroll
    for (int i = 0; i < XI; ++i) {
        const bool is_inside = (unsigned int)(h0 + i / ALPHA) < (unsigned int)p.image_size[0] &&
                               (unsigned int)(w0 + i % ALPHA) < (unsigned int)p.image_size[1];
        found.inside |= (Inside)is_inside << i;
    }
    const long long offset = tile.n * p.image_n + channel * p.image_c + h0 * p.image_h + w0 * p.image_w;
    found.from += offset * (int)sizeof(Image);
    return found;
}

// Addresses by sums alone: this is work beside other work.
__device__ __forceinline__ void read(const Params& p, const Source& source, Image (&d)[XI]) {
    const Inside inside = source.channel < p.channels ? source.inside : (Inside)0;
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

// element(i) gives element i of the tile; put(i, value) takes component i.
template <class Element, class Put> __device__ __forceinline__ void transform(Element element, Put put) {
    float v[XI];
    #pragma unroll
    for (int j = 0; j < ALPHA; ++j) {
        float in[ALPHA], out[ALPHA];
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) in[i] = element(i * ALPHA + j);
        to_image(in, out);
        #pragma unroll
        for (int i = 0; i < ALPHA; ++i) v[i * ALPHA + j] = out[i];
    }
    #pragma unroll
    for (int i = 0; i < ALPHA; ++i) {
        float in[ALPHA], out[ALPHA];
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) in[j] = v[i * ALPHA + j];
        to_image(in, out);
        #pragma unroll
        for (int j = 0; j < ALPHA; ++j) put(i * ALPHA + j, out[j]);
    }
}
