// The stages of one piece of a convolution.
template <class Slot> __device__ __forceinline__ void fill(const Params& p, const Work& w, Slot slot) {
    if constexpr (WGRAD) fill_wgrad(p, w, slot);
    else fill_forward(p, w, slot);
}
