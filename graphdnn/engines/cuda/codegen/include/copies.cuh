// Asynchronous copies from global into shared memory, 16 bytes each, in groups that complete in order.

__device__ __forceinline__ void copy_16(void* to, const void* from) {
#ifdef __CUDA_ARCH__
    const unsigned int shared = (unsigned int)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
#else
    emulated_copy_async(to, from, 16, 1);
#endif
}

__device__ __forceinline__ void end_group() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emulated_commit_copies();
#endif
}

// All groups but the latest LEFT are complete.
template <int LEFT> __device__ __forceinline__ void wait_for_groups() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#else
    emulated_await_copies(LEFT);
#endif
}
