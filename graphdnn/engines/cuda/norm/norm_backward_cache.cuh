// x and the gradient stay in the types of the graph: the conversion to the compute type is exact.
__device__ __forceinline__ Elements widened(const Stored& vec) {
    Elements elements;
    unpack_words(vec.x, elements.x);
    unpack_words(vec.g, elements.g);
    return elements;
}
