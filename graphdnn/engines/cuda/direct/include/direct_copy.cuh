// Asynchronous copies from global to shared memory (cp.async), which overlap with arithmetic.

// Copies BYTES from global to shared memory, or writes zeros where `inside` is false. Copies below 4 bytes are synchronous.
template <int BYTES> __device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
#ifdef __CUDA_ARCH__
    if constexpr (BYTES >= 4) {
        const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
        const int given = inside ? BYTES : 0;
        if constexpr (BYTES == 16)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"  // neighbouring bytes of the pixel follow
                         ::"r"(target), "l"(from), "r"(given) : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                         ::"r"(target), "l"(from), "n"(BYTES), "r"(given) : "memory");
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

__device__ __forceinline__ void commit_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emulated_commit_copies();
#endif
}

// Waits until at most PENDING groups of this thread's copies are outstanding.
template <int PENDING> __device__ __forceinline__ void await_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
    emulated_await_copies(PENDING);
#endif
}
