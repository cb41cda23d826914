// The CTAs of a cluster divide the segments of their rows. They exchange sums through distributed shared memory, and each CTA
// adds them in the order of ranks, without a second launch.

#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)

constexpr int PARTS = CLUSTER;
constexpr bool KEEPS = true;

__device__ __forceinline__ int parts_of(const Params&) { return PARTS; }

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Relaxed: the arrival does not order this thread's writes, so no fence is needed.
__device__ __forceinline__ void greet_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ unsigned int address_in(int block, const void* shared) {
    unsigned int there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned int)__cvta_generic_to_shared(shared)), "r"(block));
    return there;
}
// Stores to the same address in another CTA's shared memory.
__device__ __forceinline__ void send(float* to, int block, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in(block, to)), "f"(value) : "memory");
}
__device__ __forceinline__ void send(double* to, int block, double value) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address_in(block, to)), "d"(value) : "memory");
}
#else
__device__ __forceinline__ void arrive_in_cluster() { emulated_cluster_arrive(); }
__device__ __forceinline__ void await_cluster() { emulated_cluster_wait(); }
__device__ __forceinline__ void greet_cluster() { emulated_cluster_arrive(); }
template <class T> __device__ __forceinline__ void send(T* to, int block, T value) {
    emulated_dsmem_store((unsigned int)__cvta_generic_to_shared(to), block, &value, sizeof value);
}
#endif

__device__ __forceinline__ void greet_parts() { greet_cluster(); }
