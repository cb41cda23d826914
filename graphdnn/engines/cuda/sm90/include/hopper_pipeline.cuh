// What the kernels of compute capability 9.0 move and wait with: barriers in shared memory, tensor copies (TMA), and the
// descriptors by which tensor cores find their operands.
//
// An operand's stage is rows of SWIZZLE_BYTES bytes, 16-byte parts of each exchanged by the row's number modulo 8, as both the
// copies and the tensor cores count it (128-byte swizzle).

struct TensorMap;                     // not every kernel has one
typedef unsigned int smem_addr_t;        // an address in shared memory
typedef unsigned long long smem_desc_t;  // a descriptor

constexpr int SWIZZLE_BYTES = 128;
[[maybe_unused]] constexpr int SLAB_BYTES = 64 * SWIZZLE_BYTES;  // 64 rows

__device__ __forceinline__ smem_addr_t smem_addr(const void* p) { return (smem_addr_t)__cvta_generic_to_shared(p); }

// Place in a ring of stages.
template <int COUNT> struct PipelineState {
    int stage = 0, phase = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == COUNT) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void skip(int stages) {
        const unsigned int at = (unsigned int)(stage + stages), rounds = at / COUNT;
        stage = (int)(at - rounds * COUNT);
        phase ^= (int)(rounds & 1);
    }
};

// An operand in shared memory. Along k: a row is one row or column of the product, its bytes run along k. Across k: a
// row is one step of k, and a panel holds 64 rows or columns of the product.
template <bool ACROSS> __device__ __forceinline__ smem_desc_t make_desc(smem_addr_t address) {
    const smem_desc_t between_panels = ACROSS ? SLAB_BYTES >> 4 : 1, between_eights = (8 * SWIZZLE_BYTES) >> 4, swizzled = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}
// From one instruction's part of k to the next one's, which is 32 bytes or 16 rows on.
template <bool ACROSS> constexpr int DESC_STEP_K = ACROSS ? 16 * SWIZZLE_BYTES >> 4 : 32 >> 4;

#ifdef __CUDA_ARCH__
// Barriers: a phase ends when `count` threads have arrived and the bytes that were announced have landed.
__device__ __forceinline__ void mbarrier_init(smem_addr_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void mbarrier_expect_tx(smem_addr_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// What was initialized is seen by the copy unit.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;"); }
// A plain arrival: one that releases to the cluster becomes a fence of the whole device, once for each stage.
__device__ __forceinline__ void mbarrier_arrive(smem_addr_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_wait_parity(smem_addr_t barrier, int phase) {
    asm volatile("{\n.reg .pred p;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier), "r"(phase) : "memory");
}

// So many threads, whole warps, wait for each other.
template <int COUNT> __device__ __forceinline__ void named_barrier_sync() { asm volatile("bar.sync 1, %0;" ::"n"(COUNT) : "memory"); }

// One thread of a warp, the same each time.
__device__ __forceinline__ bool elect_one() {
    unsigned int elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected;
}

// A rectangle of a tensor, to shared memory; what lies outside the tensor becomes zero.
__device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(row) : "memory");
}
__device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int row, int plane) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(row), "r"(plane) : "memory");
}
__device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int w, int h, int n) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n) : "memory");
}
__device__ __forceinline__ void tma_load_tile(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int i, int j, int k, int l
) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(i), "r"(j), "r"(k), "r"(l) : "memory");
}
// Channels c, c + 1, ... of pixels that follow each other in an image's walk, seen through one tap (im2col). Spatial
// coordinates and the tap's offsets come outermost first; an image of fewer axes uses the last ones.
template <int SPATIAL>
__device__ __forceinline__ void tma_load_im2col(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int n, const int (&at)[3], const int (&tap)[3]
) {
    const unsigned short o0 = (unsigned short)tap[0], o1 = (unsigned short)tap[1], o2 = (unsigned short)tap[2];
    if constexpr (SPATIAL == 1)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5}], [%2], {%6};"
                     ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(at[2]), "r"(n), "h"(o2) : "memory");
    else if constexpr (SPATIAL == 2)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                     ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(at[2]), "r"(at[1]), "r"(n), "h"(o2), "h"(o1) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};"
                     ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(n),
                     "h"(o2), "h"(o1), "h"(o0) : "memory");
}

// Ahead of the first copy: a map is 128 bytes of the parameters.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All groups of products but the latest LEFT are complete.
template <int LEFT> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// Nothing moves a sum past this point: the tensor cores write sums while other instructions run.
template <int COUNT> __device__ __forceinline__ void fence_accumulators(float (&sum)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
template <int COUNT> __device__ __forceinline__ void fence_accumulators(int (&sum)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(sum[i])::"memory");
}

// Registers of a warpgroup's threads: copying needs few, sums need many.
template <int COUNT> __device__ __forceinline__ void dealloc_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void alloc_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
#else
__device__ __forceinline__ void mbarrier_init(smem_addr_t barrier, int count) { emulated_mbarrier_init(barrier, count); }
__device__ __forceinline__ void fence_barrier_init() {}
__device__ __forceinline__ void mbarrier_expect_tx(smem_addr_t barrier, int bytes) { emulated_mbarrier_arrive(barrier, bytes); }
__device__ __forceinline__ void mbarrier_arrive(smem_addr_t barrier) { emulated_mbarrier_arrive(barrier, 0); }
__device__ __forceinline__ void mbarrier_wait_parity(smem_addr_t barrier, int phase) { emulated_mbarrier_wait(barrier, phase); }
template <int COUNT> __device__ __forceinline__ void named_barrier_sync() {}
__device__ __forceinline__ bool elect_one() { return threadIdx.x % 32 == 0; }

template <class... At> __device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, At... at) {
    const int all[] = {at...};
    emulated_tma_load_tile(to, &map, barrier, all, sizeof...(at));
}
template <int SPATIAL>
__device__ __forceinline__ void tma_load_im2col(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int n, const int (&at)[3], const int (&tap)[3]
) {
    int all[SPATIAL + 2] = {c}, offset[SPATIAL];
    for (int d = 0; d < SPATIAL; ++d) all[1 + d] = at[2 - d], offset[d] = tap[2 - d];
    all[SPATIAL + 1] = n;
    emulated_tma_load_im2col(to, &map, barrier, all, offset, SPATIAL + 2);
}

__device__ __forceinline__ void prefetch_tensormap(const TensorMap&) {}
__device__ __forceinline__ void wgmma_fence() {}
__device__ __forceinline__ void wgmma_commit() { emulated_warpgroup_commit(); }
template <int LEFT> __device__ __forceinline__ void wgmma_wait() { emulated_warpgroup_wait(LEFT); }
template <class T, int COUNT> __device__ __forceinline__ void fence_accumulators(T (&)[COUNT]) {}
template <int COUNT> __device__ __forceinline__ void dealloc_registers() {}
template <int COUNT> __device__ __forceinline__ void alloc_registers() {}
#endif

// What threads have read of a stage is in their registers, before its next copy may begin. An arrival alone does not wait for
// reads that are under way, and they can be overtaken: with stores queueing before them, by a whole copy.
__device__ __forceinline__ void fence_proxy_async() {
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Barriers of a ring: one arrival fills a stage, so many leave it.
template <int COUNT> __device__ __forceinline__ void init_pipeline(smem_addr_t full, smem_addr_t empty, int leaving) {
    for (int i = 0; i < COUNT; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, leaving);
    }
}
