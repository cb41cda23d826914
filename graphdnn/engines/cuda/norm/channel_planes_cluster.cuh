// The CTAs of a cluster divide the segments of their rows. They exchange sums through distributed shared memory, and each CTA
// adds them in the order of ranks, without a second launch.

#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)

constexpr int PARTS = CLUSTER;
constexpr bool CACHES = true;

__device__ __forceinline__ int slices_of(const Params&) { return PARTS; }

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Relaxed: the arrival does not order this thread's writes, so no fence is needed.
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ unsigned int map_to_cta(int block, const void* shared) {
    unsigned int there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned int)__cvta_generic_to_shared(shared)), "r"(block));
    return there;
}
// Stores to the same address in another CTA's shared memory.
__device__ __forceinline__ void dsmem_store(float* to, int block, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(map_to_cta(block, to)), "f"(value) : "memory");
}
__device__ __forceinline__ void dsmem_store(double* to, int block, double value) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(map_to_cta(block, to)), "d"(value) : "memory");
}
#else
__device__ __forceinline__ void cluster_arrive() { emulated_cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { emulated_cluster_wait(); }
__device__ __forceinline__ void cluster_arrive_relaxed() { emulated_cluster_arrive(); }
template <class T> __device__ __forceinline__ void dsmem_store(T* to, int block, T value) {
    emulated_dsmem_store((unsigned int)__cvta_generic_to_shared(to), block, &value, sizeof value);
}
#endif

__device__ __forceinline__ void announce_cluster() { cluster_arrive_relaxed(); }
