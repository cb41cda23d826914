// Parts of a split product are the blocks of a cluster, one piece of work each. They send each other their sums, and each adds
// and stores its share of the tile, always in the order of the parts: no launch, and nothing in memory.
//
// What is sent are units: the 8 rows x 32 columns that are one of the two rows of each thread of a warp. They are dealt out among
// the blocks; a block's inbox has, for each of its own, what every part says of it.

#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)

constexpr int UNITS_OF_TILE = CONSUMERS * MI * BLOCKS_OF_TILE * 8, UNITS_OF_BLOCK = (UNITS_OF_TILE + CLUSTER - 1) / CLUSTER;
constexpr int HALF_UNIT = 32 * 16;  // bytes, by which a lane's four sums and its other four are apart

// Pieces are counted part by part; blocks of a cluster have the parts of a tile.
__device__ __forceinline__ int piece_at(const Params& p, int number) {
    const int part = take(number, CLUSTER);
    return part * (int)p.tiles + number;
}

#ifdef __CUDA_ARCH__
// All threads of the cluster that have not left.
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void greet_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
// 16 bytes to the same place in another block's shared memory.
__device__ __forceinline__ void send(shared_t to, int block, const Accumulator* v) {
    const unsigned int* const word = (const unsigned int*)v;
    shared_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(block));
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(there), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}
#else
__device__ __forceinline__ void arrive_in_cluster() { emulated_cluster_arrive(); }
__device__ __forceinline__ void await_cluster() { emulated_cluster_wait(); }
__device__ __forceinline__ void greet_cluster() { emulated_cluster_arrive(); }
__device__ __forceinline__ void send(shared_t to, int block, const Accumulator* v) { emulated_send(to, block, v, 16); }
#endif

__device__ __forceinline__ void leave_parts(
    const Params& p, const Work& w, int number, int consumer, unsigned char* inbox, const Accumulator (&sum)[MI][SUMS]
) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32, rank = number % CLUSTER;
    const shared_t to = shared_address(inbox) + rank * (2 * HALF_UNIT) + lane * 16;
    await_cluster();  // the others' shared memory is there
    #pragma unroll
    for (int j = 0; j < MI; ++j)
        #pragma unroll
        for (int block = 0; block < BLOCKS_OF_TILE; ++block)
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int unit = (((consumer * MI + j) * BLOCKS_OF_TILE + block) * 2 + h) * 4 + warp;
                const shared_t place = to + unit / CLUSTER * (CLUSTER * 2 * HALF_UNIT);
                Accumulator v[8];
                row_of_sums(v, block_of_sums(sum[j], block).at, h);
                send(place, unit % CLUSTER, v);
                send(place + HALF_UNIT, unit % CLUSTER, v + 4);
            }
    arrive_in_cluster();
    await_cluster();
    #pragma unroll 1
    for (int slot = consumer * 4 + warp; slot < UNITS_OF_BLOCK; slot += 4 * CONSUMERS) {
        int unit = slot * CLUSTER + rank;
        if (unit >= UNITS_OF_TILE) break;
        Accumulator v[8] = {};
        #pragma unroll
        for (int part = 0; part < CLUSTER; ++part)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned char* const from = inbox + ((slot * CLUSTER + part) * 2 + half) * HALF_UNIT + lane * 16;
                const Pack<Accumulator, 4> pack = load_pack<4>((const Accumulator*)from);
                #pragma unroll
                for (int e = 0; e < 4; ++e) v[4 * half + e] = wrapping_sum(v[4 * half + e], pack.at[e]);
            }
        const int of_warp = take(unit, 4), h = take(unit, 2), block = take(unit, BLOCKS_OF_TILE);
        const Rows rows = rows_from(p, w, unit * 64 + of_warp * 16 + lane / 4 + 8 * h);
        const Piece at = piece_of(p, w, rows, block, 0);
        Held held;
        keep_piece(p, at, held);
        leave(p, at, held, v);
    }
}
