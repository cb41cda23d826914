// Predicated vector loads. LOAD_IF_HINT is a cache hint of the load instruction (whole_lines.cuh).

#ifndef LOAD_IF_HINT
#define LOAD_IF_HINT ""
#endif

// Load V elements, or zeros. One asm block writes the zeros before the load, so that nothing waits for the load.
template <int V, class T> __device__ __forceinline__ void load_if(bool valid, const T* from, T (&to)[V]) {
    Vec<T, V> vec;
    constexpr int BYTES = V * (int)sizeof(T);
    static_assert(BYTES <= 16, "one access");
#ifdef __CUDA_ARCH__
    if constexpr (BYTES == 16) {
        uint4 w;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0; "
                     "@p ld.global.nc" LOAD_IF_HINT ".v4.u32 {%0, %1, %2, %3}, [%4]; }"
                     : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(from), "r"((int)valid));
        *(uint4*)&vec = w;
    } else if constexpr (BYTES == 8) {
        uint2 w;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
                     "@p ld.global.nc" LOAD_IF_HINT ".v2.u32 {%0, %1}, [%2]; }"
                     : "=r"(w.x), "=r"(w.y) : "l"(from), "r"((int)valid));
        *(uint2*)&vec = w;
    } else if constexpr (BYTES == 4) {
        unsigned int w;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0; @p ld.global.nc" LOAD_IF_HINT ".u32 %0, [%1]; }"
                     : "=r"(w) : "l"(from), "r"((int)valid));
        *(unsigned int*)&vec = w;
    } else {
        unsigned short w;
        if constexpr (BYTES == 2)
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b16 %0, 0; @p ld.global.nc" LOAD_IF_HINT ".u16 %0, [%1]; }"
                         : "=h"(w) : "l"(from), "r"((int)valid));
        else
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b16 %0, 0; @p ld.global.nc" LOAD_IF_HINT ".u8 %0, [%1]; }"
                         : "=h"(w) : "l"(from), "r"((int)valid));
        *(typename Word<BYTES>::type*)&vec = (typename Word<BYTES>::type)w;
    }
#else
    for (int i = 0; i < BYTES; ++i) ((unsigned char*)&vec)[i] = 0;
    if (valid) vec = load_vec_read_only<V>(from);
#endif
    #pragma unroll
    for (int e = 0; e < V; ++e) to[e] = vec.data[e];
}

// Load V elements, or keep the old contents of `to`, which the caller has cleared once.
template <int V, class T> __device__ __forceinline__ void load_over_if(bool valid, const T* from, Vec<T, V>& to) {
#ifdef __CUDA_ARCH__
    constexpr int BYTES = V * (int)sizeof(T);
    if constexpr (BYTES == 16) {
        uint4 w = *(const uint4*)&to;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; "
                     "@p ld.global.nc" LOAD_IF_HINT ".v4.u32 {%0, %1, %2, %3}, [%4]; }"
                     : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w) : "l"(from), "r"((int)valid));
        *(uint4*)&to = w;
        return;
    } else if constexpr (BYTES == 8) {
        uint2 w = *(const uint2*)&to;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p ld.global.nc" LOAD_IF_HINT ".v2.u32 {%0, %1}, [%2]; }"
                     : "+r"(w.x), "+r"(w.y) : "l"(from), "r"((int)valid));
        *(uint2*)&to = w;
        return;
    } else if constexpr (BYTES == 4) {
        unsigned int w = *(const unsigned int*)&to;
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc" LOAD_IF_HINT ".u32 %0, [%1]; }"
                     : "+r"(w) : "l"(from), "r"((int)valid));
        *(unsigned int*)&to = w;
        return;
    }
#endif
    if (valid) to = load_vec_read_only<V>(from);
}
