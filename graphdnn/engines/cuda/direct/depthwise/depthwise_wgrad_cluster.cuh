// Parts of a depthwise filter gradient are the blocks of a cluster: they send each other their sums, four at a time, and each
// adds and stores its share of the filter, always in the order of the parts. No second launch, and nothing in memory.

#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)

#ifdef __CUDA_ARCH__
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// 16 bytes to the same place in another block's shared memory.
__device__ __forceinline__ void send(void* to, int block, const Accum (&v)[4]) {
    const unsigned int* const word = (const unsigned int*)v;
    unsigned int there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned int)__cvta_generic_to_shared(to)), "r"(block));
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(there), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}
#else
__device__ __forceinline__ void arrive_in_cluster() { emulated_cluster_arrive(); }
__device__ __forceinline__ void await_cluster() { emulated_cluster_wait(); }
__device__ __forceinline__ void send(void* to, int block, const Accum (&v)[4]) {
    emulated_dsmem_store((unsigned int)__cvta_generic_to_shared(to), block, v, 16);
}
#endif

__device__ __forceinline__ int part_of_block(const Params&) { return (int)blockIdx.x % CLUSTER; }
__device__ __forceinline__ int channels_of_block(const Params&) { return (int)blockIdx.x / CLUSTER; }
__device__ __forceinline__ void greet_parts() { arrive_in_cluster(); }

// The sums of the block's tiles, [tile][tap][channel]. Fours of sums are dealt out among the blocks; behind the sums, a
// block's memory has for each of its own what every part says of it.
__device__ __forceinline__ void leave_part(const Params& p, Accum* shared, int part, int channel_block) {
    constexpr int CHANNELS = LANES * V, COUNT = R * S * CHANNELS;
    static_assert(COUNT % 4 == 0 && sizeof(Accum) == 4, "fours");
    Accum* const inbox = shared + TILES * COUNT;
    await_cluster();  // the others' shared memory is there
    #pragma unroll 1
    for (int i = threadIdx.x; i < COUNT / 4; i += THREADS) {
        Accum all[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            all[e] = shared[4 * i + e];
            #pragma unroll
            for (int j = 1; j < TILES; ++j) all[e] = wrapping_sum(all[e], shared[j * COUNT + 4 * i + e]);
        }
        send(inbox + (i / CLUSTER * CLUSTER + part) * 4, i % CLUSTER, all);
    }
    arrive_in_cluster();
    await_cluster();
    #pragma unroll 1
    for (int i = threadIdx.x; (i / 4 * CLUSTER + part) * 4 < COUNT; i += THREADS) {
        const Accum* const from = inbox + i / 4 * (CLUSTER * 4) + i % 4;
        Accum all = from[0];
        #pragma unroll
        for (int j = 1; j < CLUSTER; ++j) all = wrapping_sum(all, from[4 * j]);
        const int element = (i / 4 * CLUSTER + part) * 4 + i % 4, tap = element / CHANNELS, r = tap / S, s = tap % S;
        const int o = channel_block * CHANNELS + element % CHANNELS;
        if (o >= (int)p.channels_out) continue;
        const int at[6] = {o, 0, 0, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
        const Accum acc[1] = {all};
        epilogue(p, at, acc);
    }
}
