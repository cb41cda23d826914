// cp.async of 16 bytes from global to shared memory, in groups that complete in order.

__device__ __forceinline__ void cp_async_16(void* to, const void* from) {
#ifdef __CUDA_ARCH__
    const unsigned int shared = (unsigned int)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
#else
    emulated_copy_async(to, from, 16, 1);
#endif
}

__device__ __forceinline__ void cp_async_commit() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#else
    emulated_commit_copies();
#endif
}

// Wait until at most the latest LEFT groups are incomplete.
template <int LEFT> __device__ __forceinline__ void cp_async_wait() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#else
    emulated_await_copies(LEFT);
#endif
}
