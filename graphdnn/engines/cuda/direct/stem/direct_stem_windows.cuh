// Windows of pixels as rows of A, and filters as columns of B; see direct_stem.cu.

#include "direct_copy.cuh"
#include "direct_stem_rows.cuh"

constexpr int PIXEL_PARITIES = STRIDE_W * C % 2 ? 2 : 1;  // pixels from row to row of A
constexpr bool HAS_LEADING_ELEMENT = LEADING_ELEMENT || PIXEL_PARITIES == 2;
constexpr int FILTER_ROW_K = (WINDOW + HAS_LEADING_ELEMENT + 7) / 8 * 8;  // K of one filter row
constexpr int K_SLICES = FILTER_ROWS * (FILTER_ROW_K / 8);   // K slices of 8
constexpr int A_ROW_STRIDE = STRIDE_W * C * PIXEL_PARITIES;          // elements from row to row of A

// Loads two neighbouring elements. The address is a multiple of 4 bytes.
__device__ __forceinline__ unsigned int pair_at(const Element* at) { return *(const unsigned int*)at; }

// Copies the filters of CHANNELS channels, in the order of global memory, with the first COUNT threads.
template <int CHANNELS, int COUNT> __device__ __forceinline__ void copy_filters(const Params& p, Filter* smem_filter, int channel) {
    const long long offset = (long long)channel * FILTER_SIZE, left = p.filter_elements - offset;
    for (int i = threadIdx.x * FILTER_COPY_ELEMS; i < CHANNELS * FILTER_SIZE; i += COUNT * FILTER_COPY_ELEMS)
        cp_async_zfill<FILTER_COPY_ELEMS * (int)sizeof(Filter)>(smem_filter + i, i < left ? p.filter + offset + i : p.filter, i < left);
}

template <class T> __device__ __forceinline__ unsigned short bits_of(const T& x) {
    if constexpr (same<Element, T>) return x.bits;
    else return narrow<Element>(widen<float>(x)).bits;
}

// The weight of element `at` in the window of filter row r, or 0 outside the filter.
__device__ __forceinline__ unsigned short weight_at(const Params& p, const Filter* smem_filter, int channel, int r, int at) {
    const bool is_tap = r < FILTER_ROWS && at >= 0 && at < WINDOW;
    const int tap = FILTER_IS_PACKED ? r * WINDOW + at : filter_offset(p, r, at);
    const unsigned short bits = bits_of(smem_filter[is_tap ? channel * FILTER_SIZE + tap : 0]);
    return is_tap ? bits : (unsigned short)0;
}
