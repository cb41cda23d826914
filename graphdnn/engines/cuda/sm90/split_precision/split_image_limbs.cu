// Splits an image into bfloat16 limbs for hopper_limbs_wgrad.cu: x[n, d, h, w, c] -> limbs[limb, n, d, h, w, padded c].
//
// A float has three limbs, the largest first. An integer has its bytes, the lowest first; the highest byte has the sign.
// Layout:    each limb is an NHWC tensor of its own; its rows of channels are filled up with zeros to a multiple of 8.
// Threads:   each thread splits 8 channels of one pixel, in a grid-stride loop.
//
// Required constants (from the generator): THREADS of a CTA, LIMBS that are stored (1 to 3), type Element of the image.

#include "pdl.cuh"
#include "limbs.cuh"

__device__ __forceinline__ void split_limbs(float x, float y, unsigned int (&to)[3]) { split_pair(x, y, to[0], to[1], to[2]); }
__device__ __forceinline__ void split_limbs(int x, int y, unsigned int (&to)[LIMBS]) {
    #pragma unroll
    for (int j = 0; j < LIMBS; ++j) {
        const int low = j + 1 < LIMBS ? x >> 8 * j & 255 : x >> 8 * j, high = j + 1 < LIMBS ? y >> 8 * j & 255 : y >> 8 * j;
        to[j] = __byte_perm(__float_as_uint((float)low), __float_as_uint((float)high), 0x7632);  // exact: bfloat16 has 8 bits
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) split_image_limbs(const __grid_constant__ Params p) {
    pdl_trigger();
    const int vectors = (int)p.blocks;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += (long long)gridDim.x * THREADS) {
        const long long pixel = i / vectors;
        const int vector = (int)(i - pixel * vectors), valid_channels = (int)p.channels - vector * 8;
        long long rem = pixel, offset = vector * 8;
        #pragma unroll
        for (int d = 3; d >= 0; --d) {
            const long long next = d > 0 ? rem / p.size[d] : 0;
            offset += (rem - next * p.size[d]) * p.stride[d];
            rem = next;
        }
        Vec<Element, 8> x;
        if (valid_channels >= 8) {
            x = load_vec_read_only<8>(p.from + offset);
        } else {
            #pragma unroll
            for (int e = 0; e < 8; ++e) x.data[e] = e < valid_channels ? load_vec_read_only<1>(p.from + offset + e).data[0] : Element(0);
        }
        constexpr int SPLIT_LIMBS = same<Element, float> ? 3 : LIMBS;  // split_pair always computes three
        Vec<unsigned int, 4> limbs[SPLIT_LIMBS];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            unsigned int to[SPLIT_LIMBS];
            split_limbs(x.data[2 * e], x.data[2 * e + 1], to);
            #pragma unroll
            for (int j = 0; j < SPLIT_LIMBS; ++j) limbs[j].data[e] = to[j];
        }
        #pragma unroll
        for (int j = 0; j < LIMBS; ++j) store_vec<4>(p.limbs + j * p.limb_words + i * 4, limbs[j]);
    }
}
