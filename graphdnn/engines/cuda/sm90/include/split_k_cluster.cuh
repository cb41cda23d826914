// Parts of a split product are the blocks of a cluster, one piece of work each. They send each other their sums, and each adds
// and stores its share of the tile, always in the order of the parts: no launch, and nothing in memory.
//
// What is sent are units: the 8 rows x 32 columns that are one of the two rows of each thread of a warp. They are dealt out among
// the blocks; a block's inbox has, for each of its own, what every part says of it.

#define SPLIT_K_CLUSTER __cluster_dims__(CLUSTER, 1, 1)

constexpr int EXCHANGE_UNITS = CONSUMER_WARPGROUPS * MMA_TILES_M * COLUMN_BLOCKS * 8, EXCHANGE_UNITS_PER_CTA = (EXCHANGE_UNITS + CLUSTER - 1) / CLUSTER;
constexpr int HALF_UNIT = 32 * 16;  // bytes, by which a lane's four sums and its other four are apart

// Pieces are counted part by part; blocks of a cluster have the parts of a tile.
__device__ __forceinline__ int split_k_item(const Params& p, int number) {
    const int part = divmod_inplace(number, CLUSTER);
    return part * (int)p.tiles + number;
}

#ifdef __CUDA_ARCH__
// All threads of the cluster that have not left.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
// 16 bytes to the same place in another block's shared memory.
__device__ __forceinline__ void dsmem_store(smem_addr_t to, int block, const Accum* v) {
    const unsigned int* const word = (const unsigned int*)v;
    smem_addr_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(block));
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(there), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}
#else
__device__ __forceinline__ void cluster_arrive() { emulated_cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { emulated_cluster_wait(); }
__device__ __forceinline__ void cluster_arrive_relaxed() { emulated_cluster_arrive(); }
__device__ __forceinline__ void dsmem_store(smem_addr_t to, int block, const Accum* v) { emulated_dsmem_store(to, block, v, 16); }
#endif

__device__ __forceinline__ void reduce_splits(
    const Params& p, const WorkTile& w, int number, int consumer, unsigned char* dsmem_buffer, const Accum (&sum)[MMA_TILES_M][ACCUMS]
) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32, rank = number % CLUSTER;
    const smem_addr_t to = smem_addr(dsmem_buffer) + rank * (2 * HALF_UNIT) + lane * 16;
    cluster_wait();  // the others' shared memory is there
    #pragma unroll
    for (int j = 0; j < MMA_TILES_M; ++j)
        #pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; ++block)
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int unit = (((consumer * MMA_TILES_M + j) * COLUMN_BLOCKS + block) * 2 + h) * 4 + warp;
                const smem_addr_t place = to + unit / CLUSTER * (CLUSTER * 2 * HALF_UNIT);
                Accum v[8];
                row_fragment(v, column_block(sum[j], block).at, h);
                dsmem_store(place, unit % CLUSTER, v);
                dsmem_store(place + HALF_UNIT, unit % CLUSTER, v + 4);
            }
    cluster_arrive();
    cluster_wait();
    #pragma unroll 1
    for (int acquire = consumer * 4 + warp; acquire < EXCHANGE_UNITS_PER_CTA; acquire += 4 * CONSUMER_WARPGROUPS) {
        int unit = acquire * CLUSTER + rank;
        if (unit >= EXCHANGE_UNITS) break;
        Accum v[8] = {};
        #pragma unroll
        for (int part = 0; part < CLUSTER; ++part)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned char* const from = dsmem_buffer + ((acquire * CLUSTER + part) * 2 + half) * HALF_UNIT + lane * 16;
                const Vec<Accum, 4> pack = load_vec<4>((const Accum*)from);
                #pragma unroll
                for (int e = 0; e < 4; ++e) v[4 * half + e] = wrapping_sum(v[4 * half + e], pack.data[e]);
            }
        const int of_warp = divmod_inplace(unit, 4), h = divmod_inplace(unit, 2), block = divmod_inplace(unit, COLUMN_BLOCKS);
        const RowCoords rows = row_coords_at(p, w, unit * 64 + of_warp * 16 + lane / 4 + 8 * h);
        const FragmentSlice at = fragment_slice(p, w, rows, block, 0);
        EpilogueOperands held;
        load_epilogue_operands(p, at, held);
        store_fragment(p, at, held, v);
    }
}
