// Split reduction of a depthwise filter gradient in a cluster: the splits are the CTAs of a cluster. They exchange partial
// sums through distributed shared memory, four at a time, and each CTA adds and stores its range of filter elements in the
// order of the splits. There is no second launch and no workspace.

#define SPLIT_CLUSTER __cluster_dims__(CLUSTER, 1, 1)

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Stores 16 bytes at the same offset in another CTA's shared memory.
__device__ __forceinline__ void dsmem_store(void* to, int block, const Accum (&v)[4]) {
    const unsigned int* const word = (const unsigned int*)v;
    unsigned int remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"((unsigned int)__cvta_generic_to_shared(to)), "r"(block));
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(remote), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}
#else
__device__ __forceinline__ void cluster_arrive() { emulated_cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { emulated_cluster_wait(); }
__device__ __forceinline__ void dsmem_store(void* to, int block, const Accum (&v)[4]) {
    emulated_dsmem_store((unsigned int)__cvta_generic_to_shared(to), block, v, 16);
}
#endif

__device__ __forceinline__ int split_index(const Params&) { return (int)blockIdx.x % CLUSTER; }
__device__ __forceinline__ int channel_block_index(const Params&) { return (int)blockIdx.x / CLUSTER; }
__device__ __forceinline__ void arrive_splits() { cluster_arrive(); }

// `shared` is [tile][tap][channel]. Vectors of four sums are dealt round-robin to the CTAs. After the sums, each CTA has a
// buffer with the partial sums of all splits for its vectors.
__device__ __forceinline__ void store_split(const Params& p, Accum* shared, int split, int channel_block) {
    constexpr int CHANNELS = CHANNEL_THREADS * V, COUNT = R * S * CHANNELS;
    static_assert(COUNT % 4 == 0 && sizeof(Accum) == 4, "whole vectors of four");
    Accum* const dsmem_buffer = shared + TILES * COUNT;
    cluster_wait();  // all CTAs of the cluster have started
    #pragma unroll 1
    for (int i = threadIdx.x; i < COUNT / 4; i += THREADS) {
        Accum total[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            total[e] = shared[4 * i + e];
            #pragma unroll
            for (int j = 1; j < TILES; ++j) total[e] = wrapping_sum(total[e], shared[j * COUNT + 4 * i + e]);
        }
        dsmem_store(dsmem_buffer + (i / CLUSTER * CLUSTER + split) * 4, i % CLUSTER, total);
    }
    cluster_arrive();
    cluster_wait();
    #pragma unroll 1
    for (int i = threadIdx.x; (i / 4 * CLUSTER + split) * 4 < COUNT; i += THREADS) {
        const Accum* const from = dsmem_buffer + i / 4 * (CLUSTER * 4) + i % 4;
        Accum total = from[0];
        #pragma unroll
        for (int j = 1; j < CLUSTER; ++j) total = wrapping_sum(total, from[4 * j]);
        const int element = (i / 4 * CLUSTER + split) * 4 + i % 4, tap = element / CHANNELS, r = tap / S, s = tap % S;
        const int o = channel_block * CHANNELS + element % CHANNELS;
        if (o >= (int)p.channels_out) continue;
        const int coord[6] = {o, 0, 0, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
        const Accum acc[1] = {total};
        epilogue(p, coord, acc);
    }
}
