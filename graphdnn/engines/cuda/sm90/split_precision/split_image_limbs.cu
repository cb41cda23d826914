// Planes of an image: 16-bit floats, channels last, rows of channels filled up with zeros. Of a float its three parts; of an
// integer its bytes, the lowest first, the highest with the sign. A thread splits 8 channels of one pixel.

__device__ __forceinline__ void split_pair_of(float x, float y, unsigned int (&to)[3]) { split_pair(x, y, to[0], to[1], to[2]); }
__device__ __forceinline__ void split_pair_of(int x, int y, unsigned int (&to)[PLANES]) {
    #pragma unroll
    for (int j = 0; j < PLANES; ++j) {
        const int low = j + 1 < PLANES ? x >> 8 * j & 255 : x >> 8 * j, high = j + 1 < PLANES ? y >> 8 * j & 255 : y >> 8 * j;
        to[j] = __byte_perm(__float_as_uint((float)low), __float_as_uint((float)high), 0x7632);  // eight digits: exact
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) split_image_limbs(const __grid_constant__ Params p) {
    pdl_trigger();
    const int blocks = (int)p.blocks;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += (long long)gridDim.x * THREADS) {
        const long long pixel = i / blocks;
        const int block = (int)(i - pixel * blocks), there = (int)p.channels - block * 8;
        long long rest = pixel, offset = block * 8;
        #pragma unroll
        for (int d = 3; d >= 0; --d) {
            const long long next = d > 0 ? rest / p.size[d] : 0;
            offset += (rest - next * p.size[d]) * p.stride[d];
            rest = next;
        }
        Vec<Element, 8> x;
        if (there >= 8) {
            x = load_vec_read_only<8>(p.from + offset);
        } else {
            #pragma unroll
            for (int e = 0; e < 8; ++e) x.at[e] = e < there ? load_vec_read_only<1>(p.from + offset + e).at[0] : Element(0);
        }
        constexpr int PARTS = same<Element, float> ? 3 : PLANES;
        Vec<unsigned int, 4> planes[PARTS];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            unsigned int to[PARTS];
            split_pair_of(x.at[2 * e], x.at[2 * e + 1], to);
            #pragma unroll
            for (int j = 0; j < PARTS; ++j) planes[j].at[e] = to[j];
        }
        #pragma unroll
        for (int j = 0; j < PLANES; ++j) store_vec<4>(p.planes + j * p.plane + i * 4, planes[j]);
    }
}
