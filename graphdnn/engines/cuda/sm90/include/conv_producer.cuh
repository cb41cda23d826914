// The producer's loads of a convolution's work tile. gemm_producer.cuh has the same function for matrix products.

#include "conv_work_tile.cuh"

template <class Acquire> __device__ __forceinline__ void load_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    if constexpr (WGRAD) load_wgrad_k_tiles(p, w, acquire);
    else load_forward_k_tiles(p, w, acquire);
}
