// Asynchronous copies from global to shared memory that write zeros outside an image.

#include "copies.cuh"

// cp.async of BYTES from global to shared memory, or of zeros where `inside` is false. Copies below 4 bytes are synchronous.
template <int BYTES> __device__ __forceinline__ void cp_async_zfill(void* to, const void* from, bool inside) {
#ifdef __CUDA_ARCH__
    if constexpr (BYTES >= 4) {
        const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
        const int source_bytes = inside ? BYTES : 0;
        if constexpr (BYTES == 16)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"  // neighbouring bytes of the pixel follow
                         ::"r"(target), "l"(from), "r"(source_bytes) : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                         ::"r"(target), "l"(from), "n"(BYTES), "r"(source_bytes) : "memory");
        return;
    }
#else
    if constexpr (BYTES >= 4) {
        emulated_copy_async(to, from, BYTES, inside);
        return;
    }
#endif
    typedef typename Word<BYTES>::type Access;
    Access word = Access();
    if (inside) word = *(const Access*)from;
    *(Access*)to = word;
}
