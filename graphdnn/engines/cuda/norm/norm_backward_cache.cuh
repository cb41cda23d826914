// x and the gradient stay in the types of the graph: the conversion to the compute type is exact.
__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    unpack_words(pack.x, elements.x);
    unpack_words(pack.g, elements.g);
    return elements;
}
