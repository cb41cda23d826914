// Decode element number `n` of an array into coordinates, the last axis fastest.

#include "fast_division.cuh"

template <int RANK, class Count>
__device__ __forceinline__ void coordinates_of(
    Count n, const long long (&size)[RANK], const long long (&magic)[RANK], int (&coord)[RANK]
) {
    #pragma unroll
    for (int j = RANK - 1; j > 0; --j) {
        const Count outer = quotient(n, size[j], magic[j]);
        coord[j] = (int)(n - outer * (Count)size[j]);
        n = outer;
    }
    coord[0] = (int)n;
}
