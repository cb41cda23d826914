// The stages of one piece of a convolution.
template <class Acquire> __device__ __forceinline__ void load_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    if constexpr (WGRAD) load_wgrad_k_tiles(p, w, acquire);
    else load_forward_k_tiles(p, w, acquire);
}
