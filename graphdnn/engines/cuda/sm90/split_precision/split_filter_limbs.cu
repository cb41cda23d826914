// Splits a filter into limbs for hopper_limbs.cu: w[k, taps, c] -> limbs[packed row, tap, channel block, limb, channel].
//
// Layout:    rows are rows of B in the order in which consumer threads store columns. A row has its taps, a tap has blocks of
//            CHANNELS channels, and a block has FILTER_ROW_BYTES: all limbs, one after another. Rows and channels beyond the
//            filter's are zero.
// Threads:   each thread splits 16 channels of one row and one tap.
//
// Required constants (from the generator):
//   THREADS, LIMBS, LIMB_BYTES          threads of a CTA, limbs of an element, bytes of a limb (1 or 2)
//   CHANNELS, FILTER_ROW_BYTES          channels of a block, and bytes of all its limbs
//   VEC_N                               contiguous columns that a consumer thread stores
//   PACKED                              16 channels are one aligned vector in memory
//   ROWS_FIRST                          neighbouring threads have neighbouring rows, not neighbouring channels
//   types Element (of the filter) and Im2colElement (of the other operand, which decides the channel order)

#include "pdl.cuh"
#include "limbs.cuh"

template <class T> __device__ __forceinline__ void store_limbs(unsigned char* to, const T (&x)[16]) {
    if constexpr (same<T, float>) {
        Vec<unsigned int, 8> limbs[3];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float low = x[channel_at<Im2colElement>(2 * i)], high = x[channel_at<Im2colElement>(2 * i + 1)];
            split_pair(low, high, limbs[0].data[i], limbs[1].data[i], limbs[2].data[i]);
        }
        #pragma unroll
        for (int j = 0; j < 3; ++j) store_vec<8>((unsigned int*)(to + j * (FILTER_ROW_BYTES / LIMBS)), limbs[j]);
    } else {
        #pragma unroll
        for (int j = 0; j < LIMBS; ++j) {
            Vec<unsigned char, 16> limb;
            #pragma unroll
            for (int i = 0; i < 16; ++i) limb.data[i] = (unsigned char)(x[channel_at<Im2colElement>(i)] >> (8 * j));
            store_vec<16>(to + j * (FILTER_ROW_BYTES / LIMBS), limb);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) split_filter_limbs(const __grid_constant__ Params p) {
    pdl_trigger();
    long long rem = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (rem >= p.count) return;
    const int vectors = (int)p.blocks * (CHANNELS / 16), rows = (int)p.padded_rows, taps = (int)p.taps;
    int vector, tap, packed_row;  // neighbouring threads should read neighbouring addresses
    if constexpr (ROWS_FIRST) {
        packed_row = (int)(rem % (rows * p.groups)), rem /= rows * p.groups;
        vector = (int)(rem % vectors), tap = (int)(rem / vectors);
    } else {
        vector = (int)(rem % vectors), rem /= vectors;
        tap = (int)(rem % taps), packed_row = (int)(rem / taps);
    }
    const int group = packed_row / rows, row_in_group = packed_row % rows;
    // A consumer thread accumulates columns 2q and 2q + 1 of every eight. The permuted rows make them contiguous in memory.
    const int row_in_unit = row_in_group % (4 * VEC_N), quad_lane = row_in_unit % 8 / 2;
    const int row = row_in_group - row_in_unit + quad_lane * VEC_N + row_in_unit / 8 * 2 + row_in_unit % 2;
    const int f2 = tap % (int)p.filter[2], f1 = tap / (int)p.filter[2] % (int)p.filter[1];
    const int f0 = tap / (int)p.filter[2] / (int)p.filter[1];
    const Element* const from = p.from + (group * p.stride[0] + row * p.stride[1] + f0 * p.stride[3] + f1 * p.stride[4] +
                                          f2 * p.stride[5] + vector * 16 * p.stride[2]);
    const int valid_channels = row < p.rows ? (int)p.channels - vector * 16 : 0;
    Element x[16];
    if (PACKED && valid_channels >= 16) {
        const Vec<Element, 16> vec = load_vec_read_only<16>(from);
        #pragma unroll
        for (int i = 0; i < 16; ++i) x[i] = vec.data[i];
    } else {
        #pragma unroll
        for (int i = 0; i < 16; ++i) x[i] = i < valid_channels ? load_vec_read_only<1>(from + i * p.stride[2]).data[0] : Element(0);
    }
    unsigned char* to = p.limbs + ((long long)packed_row * taps + tap) * p.blocks * FILTER_ROW_BYTES;
    to += vector / (CHANNELS / 16) * FILTER_ROW_BYTES + vector % (CHANNELS / 16) * (16 * LIMB_BYTES);
    store_limbs(to, x);
}
