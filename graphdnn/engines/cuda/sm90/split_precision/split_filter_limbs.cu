// Planes of a filter: rows of the product in the order in which threads store them, each tap by tap, block by block of
// CHANNELS, in a block plane by plane. A thread writes 16 channels of one row and tap. Beyond the last channel and the last
// row there are zeros.

template <class T> __device__ __forceinline__ void write_planes(unsigned char* to, const T (&x)[16]) {
    if constexpr (same<T, float>) {
        Vec<unsigned int, 8> planes[3];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float low = x[channel_at<Gathered>(2 * i)], high = x[channel_at<Gathered>(2 * i + 1)];
            split_pair(low, high, planes[0].at[i], planes[1].at[i], planes[2].at[i]);
        }
        #pragma unroll
        for (int j = 0; j < 3; ++j) store_vec<8>((unsigned int*)(to + j * (FILTER_ROW / PLANES)), planes[j]);
    } else {
        #pragma unroll
        for (int j = 0; j < PLANES; ++j) {
            Vec<unsigned char, 16> plane;
            #pragma unroll
            for (int i = 0; i < 16; ++i) plane.at[i] = (unsigned char)(x[channel_at<Gathered>(i)] >> (8 * j));
            store_vec<16>(to + j * (FILTER_ROW / PLANES), plane);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) split_filter_limbs(const __grid_constant__ Params p) {
    pdl_trigger();
    long long rest = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (rest >= p.count) return;
    const int splits = (int)p.blocks * (CHANNELS / 16), rows = (int)p.padded_rows, taps = (int)p.taps;
    int part, tap, place;  // what neighbouring threads read should be neighbours
    if constexpr (ROWS_FIRST) {
        place = (int)(rest % (rows * p.groups)), rest /= rows * p.groups;
        part = (int)(rest % splits), tap = (int)(rest / splits);
    } else {
        part = (int)(rest % splits), rest /= splits;
        tap = (int)(rest % taps), place = (int)(rest / taps);
    }
    const int group = place / rows, in_group = place % rows;
    // A lane gets columns 2q and 2q + 1 of every eight: these rows make them neighbours.
    const int in_32 = in_group % (4 * VEC_N), lane = in_32 % 8 / 2;
    const int row = in_group - in_32 + lane * VEC_N + in_32 / 8 * 2 + in_32 % 2;
    const int f2 = tap % (int)p.filter[2], f1 = tap / (int)p.filter[2] % (int)p.filter[1];
    const int f0 = tap / (int)p.filter[2] / (int)p.filter[1];
    const Element* const from = p.from + (group * p.stride[0] + row * p.stride[1] + f0 * p.stride[3] + f1 * p.stride[4] +
                                          f2 * p.stride[5] + part * 16 * p.stride[2]);
    const int there = row < p.rows ? (int)p.channels - part * 16 : 0;
    Element x[16];
    if (PACKED && there >= 16) {
        const Vec<Element, 16> pack = load_vec_read_only<16>(from);
        #pragma unroll
        for (int i = 0; i < 16; ++i) x[i] = pack.at[i];
    } else {
        #pragma unroll
        for (int i = 0; i < 16; ++i) x[i] = i < there ? load_vec_read_only<1>(from + i * p.stride[2]).at[0] : Element(0);
    }
    unsigned char* to = p.planes + ((long long)place * taps + tap) * p.blocks * FILTER_ROW;
    to += part / (CHANNELS / 16) * FILTER_ROW + part % (CHANNELS / 16) * (16 * PLANE_BYTES);
    write_planes(to, x);
}
