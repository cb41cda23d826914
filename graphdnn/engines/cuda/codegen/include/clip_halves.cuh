// Clip halves to an upper bound, two with each instruction. NaN propagates.
template <int V> __device__ __forceinline__ void clip_halves(half_t (&x)[V], unsigned short bound) {
    static_assert(V % 2 == 0, "pairs");
    #pragma unroll
    for (int e = 0; e < V; e += 2) {
#ifdef __CUDA_ARCH__
        asm("{ .reg .b32 pair, most; mov.b32 pair, {%0, %1}; mov.b32 most, {%2, %2}; min.NaN.f16x2 pair, pair, most; "
            "mov.b32 {%0, %1}, pair; }" : "+h"(x[e].bits), "+h"(x[e + 1].bits) : "h"(bound));
#else
        for (int i = e; i < e + 2; ++i)
            if (half_to_float(x[i].bits) > half_to_float(bound)) x[i].bits = bound;
#endif
    }
}
