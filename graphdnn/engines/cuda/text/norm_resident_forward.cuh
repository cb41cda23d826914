// What a block keeps of x, in the type that the graph gives it: widening changes nothing.
typedef Pack<StoredX, VECTOR> Stored;

__device__ __forceinline__ Elements widened(const Stored& pack) {
    Elements elements;
    #pragma unroll
    for (int e = 0; e < VECTOR; ++e) elements.x[e] = widen<Compute>(pack.at[e]);
    return elements;
}

// A number, or 0: nothing can count from what is none.
__device__ __forceinline__ Compute finite(Compute x) { return x - x == (Compute)0 ? x : (Compute)0; }
