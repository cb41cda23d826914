// Programmatic dependent launch: a kernel may start before the previous kernel of the stream has finished. The previous kernel
// calls pdl_trigger to allow it, and the dependent kernel calls pdl_wait before it reads or writes memory that both use. In
// an ordinary launch both functions do nothing.
__device__ __forceinline__ void pdl_trigger() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
