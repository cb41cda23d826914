// Planes of an image of floats: 16-bit floats, channels last, rows of channels filled up with zeros. A thread splits 8
// channels of one pixel.

extern "C" __global__ void __launch_bounds__(THREADS) hopper_image_planes(const __grid_constant__ Params p) {
    let_next_start();
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
        Pack<float, 8> x;
        if (there >= 8) {
            x = load_pack_read_only<8>(p.from + offset);
        } else {
            #pragma unroll
            for (int e = 0; e < 8; ++e) x.at[e] = e < there ? load_pack_read_only<1>(p.from + offset + e).at[0] : 0.0f;
        }
        Pack<unsigned int, 4> planes[3];
        #pragma unroll
        for (int e = 0; e < 4; ++e)
            split_pair(x.at[2 * e], x.at[2 * e + 1], planes[0].at[e], planes[1].at[e], planes[2].at[e]);
        #pragma unroll
        for (int j = 0; j < PLANES; ++j) store_pack<4>(p.planes + j * p.plane + i * 4, planes[j]);
    }
}
