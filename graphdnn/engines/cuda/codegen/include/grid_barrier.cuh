// A barrier among CTAs that run at the same time, as a cooperative launch guarantees. `arrived` is a counter that starts at 0 and
// serves one barrier. After the barrier, other CTAs' earlier writes are visible, except through the read-only path.

#include "pdl.cuh"

// Signal the arrival of this CTA, without waiting. Every thread of the CTA calls it.
__device__ __forceinline__ void arrive(unsigned int* arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        pdl_wait();
#ifdef __CUDA_ARCH__
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
#else
        atomicAdd(arrivals, 1u);
#endif
    }
}

// Wait until `blocks` CTAs have arrived. Every thread of the CTA calls it.
__device__ __forceinline__ void wait_for(const unsigned int* arrivals, unsigned int ctas) {
    if (threadIdx.x == 0) {
#ifdef __CUDA_ARCH__
        unsigned int count;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrivals) : "memory");
        while (count < ctas);
#else
        while (*(const volatile unsigned int*)arrivals < ctas) __nanosleep(0);
#endif
    }
    __syncthreads();
}
