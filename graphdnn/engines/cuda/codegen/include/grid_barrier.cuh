// A barrier among blocks that run at the same time, as a cooperative launch promises. `arrived` is a count that starts
// at 0 and is used once. What the blocks wrote before it can be read, not through the read-only path, behind it.

// The block has done its part. Every thread calls; nobody waits for other blocks.
__device__ __forceinline__ void arrive(unsigned int* arrived) {
    __syncthreads();
    if (threadIdx.x == 0) {
        pdl_wait();
#ifdef __CUDA_ARCH__
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
#else
        atomicAdd(arrived, 1u);
#endif
    }
}

// All `blocks` have. Every thread calls.
__device__ __forceinline__ void wait_for(const unsigned int* arrived, unsigned int blocks) {
    if (threadIdx.x == 0) {
#ifdef __CUDA_ARCH__
        unsigned int seen;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        while (seen < blocks);
#else
        while (*(const volatile unsigned int*)arrived < blocks) __nanosleep(0);
#endif
    }
    __syncthreads();
}
