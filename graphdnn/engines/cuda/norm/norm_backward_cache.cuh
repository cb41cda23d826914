// x and the gradient stay in the types of the graph: the conversion to the compute type is exact.
__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    widen_pack(pack.x, elements.x);
    widen_pack(pack.g, elements.g);
    return elements;
}
