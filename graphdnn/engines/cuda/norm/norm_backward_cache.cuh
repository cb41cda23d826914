// x and the gradient, kept in the types that the graph gives them: widening changes nothing.
__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    widen_pack(pack.x, elements.x);
    widen_pack(pack.g, elements.g);
    return elements;
}
