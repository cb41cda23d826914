// Split-K in a cluster: the CTAs of a cluster have the splits of one tile. They exchange partial sums through distributed shared memory
// (DSMEM), and each CTA adds and stores its part of the tile. Splits are added in order, so results do not depend on timing.
//
// Exchange:   a unit is 8 rows by 32 columns: one of the two rows of each thread of a warp, in one column block. Unit u belongs to CTA
//             u % CLUSTER. A CTA's DSMEM buffer has the partial sums of all splits for each unit of the CTA.
//
// Required constants (from the generator), besides those of epilogue_store.cuh: CLUSTER, the CTAs of a cluster (2 to 8).

#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

#define SPLIT_K_CLUSTER __cluster_dims__(CLUSTER, 1, 1)

constexpr int EXCHANGE_UNITS = CONSUMER_WARPGROUPS * MMA_TILES_M * COLUMN_BLOCKS * 8, EXCHANGE_UNITS_PER_CTA = (EXCHANGE_UNITS + CLUSTER - 1) / CLUSTER;
constexpr int HALF_UNIT_BYTES = 32 * 16;  // four accumulators of each lane

// Work items are counted split by split. The CTAs of a cluster have the splits of one tile.
__device__ __forceinline__ int split_k_item(const Params& p, int item) {
    const int split = divmod_inplace(item, CLUSTER);
    return split * (int)p.tiles + item;
}

#ifdef __CUDA_ARCH__
// Synchronize all threads of the cluster that have not exited.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
// Stores 16 bytes at the same address in another CTA's shared memory.
__device__ __forceinline__ void dsmem_store(smem_addr_t to, int cta, const Accum* v) {
    const unsigned int* const word = (const unsigned int*)v;
    smem_addr_t remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(to), "r"(cta));
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
                 ::"r"(remote), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
}
#else
__device__ __forceinline__ void cluster_arrive() { emulated_cluster_arrive(); }
__device__ __forceinline__ void cluster_wait() { emulated_cluster_wait(); }
__device__ __forceinline__ void cluster_arrive_relaxed() { emulated_cluster_arrive(); }
__device__ __forceinline__ void dsmem_store(smem_addr_t to, int cta, const Accum* v) { emulated_dsmem_store(to, cta, v, 16); }
#endif

__device__ __forceinline__ void reduce_splits(
    const Params& p, const WorkTile& w, int item, int consumer, unsigned char* dsmem_buffer, const Accum (&accum)[MMA_TILES_M][ACCUMS]
) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32, rank = item % CLUSTER;
    const smem_addr_t to = smem_addr(dsmem_buffer) + rank * (2 * HALF_UNIT_BYTES) + lane * 16;
    cluster_wait();  // the other CTAs have started: their shared memory exists
    #pragma unroll
    for (int j = 0; j < MMA_TILES_M; ++j)
        #pragma unroll
        for (int block = 0; block < COLUMN_BLOCKS; ++block)
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int unit = (((consumer * MMA_TILES_M + j) * COLUMN_BLOCKS + block) * 2 + h) * 4 + warp;
                const smem_addr_t unit_at = to + unit / CLUSTER * (CLUSTER * 2 * HALF_UNIT_BYTES);
                Accum v[8];
                row_fragment(v, column_block(accum[j], block).accum, h);
                dsmem_store(unit_at, unit % CLUSTER, v);
                dsmem_store(unit_at + HALF_UNIT_BYTES, unit % CLUSTER, v + 4);
            }
    cluster_arrive();
    cluster_wait();
    #pragma unroll 1
    for (int own_unit = consumer * 4 + warp; own_unit < EXCHANGE_UNITS_PER_CTA; own_unit += 4 * CONSUMER_WARPGROUPS) {
        int unit = own_unit * CLUSTER + rank;
        if (unit >= EXCHANGE_UNITS) break;
        Accum v[8] = {};
        #pragma unroll
        for (int split = 0; split < CLUSTER; ++split)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned char* const from = dsmem_buffer + ((own_unit * CLUSTER + split) * 2 + half) * HALF_UNIT_BYTES + lane * 16;
                const Vec<Accum, 4> vec = load_vec<4>((const Accum*)from);
                #pragma unroll
                for (int e = 0; e < 4; ++e) v[4 * half + e] = wrapping_sum(v[4 * half + e], vec.data[e]);
            }
        const int unit_warp = divmod_inplace(unit, 4), h = divmod_inplace(unit, 2), block = divmod_inplace(unit, COLUMN_BLOCKS);
        const RowCoords rows = row_coords_at(p, w, unit * 64 + unit_warp * 16 + lane / 4 + 8 * h);
        const FragmentSlice slice = fragment_slice(p, w, rows, block, 0);
        EpilogueOperands operands;
        load_epilogue_operands(p, slice, operands);
        store_fragment(p, slice, operands, v);
    }
}
