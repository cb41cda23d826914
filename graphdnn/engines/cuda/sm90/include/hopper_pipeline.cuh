// PTX instructions of sm_90a as functions: mbarriers, TMA loads, wgmma synchronization, setmaxnreg, shared-memory descriptors.
//
// Layout: a stage of an operand has rows of SWIZZLE_BYTES. TMA writes them, and wgmma reads them, with the 128-byte swizzle: the
//         16-byte vector v of row r is at vector v ^ (r % 8).
// Emulation: compiled as C++, the same functions call the emulator of tests/emulator/.

struct TensorMap;                        // a kernel without tensor maps only declares it
typedef unsigned int smem_addr_t;        // address in the shared-memory window
typedef unsigned long long smem_desc_t;  // matrix descriptor of wgmma

constexpr int SWIZZLE_BYTES = 128;
[[maybe_unused]] constexpr int SLAB_BYTES = 64 * SWIZZLE_BYTES;  // a slab has 64 rows

__device__ __forceinline__ smem_addr_t smem_addr(const void* p) { return (smem_addr_t)__cvta_generic_to_shared(p); }

// The stage that a thread uses next, and the parity of the mbarrier phase for which it waits there.
template <int COUNT> struct PipelineState {
    int stage = 0, phase = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == COUNT) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void skip(int stages) {
        const unsigned int position = (unsigned int)(stage + stages), rounds = position / COUNT;
        stage = (int)(position - rounds * COUNT);
        phase ^= (int)(rounds & 1);
    }
};

// The descriptor of a wgmma operand. K-major: a row has consecutive k of one row or column of the GEMM. MN-major: a row has 64
// consecutive rows or columns of the GEMM at one k, and a slab has 64 k. Offsets are in units of 16 bytes.
template <bool MN_MAJOR> __device__ __forceinline__ smem_desc_t make_desc(smem_addr_t address) {
    const smem_desc_t leading_offset = MN_MAJOR ? SLAB_BYTES >> 4 : 1, stride_offset = (8 * SWIZZLE_BYTES) >> 4, swizzle_128b = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | leading_offset << 16 | stride_offset << 32 | swizzle_128b << 62;
}
// Added to a descriptor, this is the next K step of an MMA: 32 bytes of a row, or 16 rows.
template <bool MN_MAJOR> constexpr int DESC_STEP_K = MN_MAJOR ? 16 * SWIZZLE_BYTES >> 4 : 32 >> 4;

#ifdef __CUDA_ARCH__
// A phase of an mbarrier completes when `count` threads have arrived and TMA has written all expected bytes.
__device__ __forceinline__ void mbarrier_init(smem_addr_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void mbarrier_expect_tx(smem_addr_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Makes the initialized mbarriers visible to TMA.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;"); }
// The arrival has CTA scope. An arrival that releases to the cluster would cost a device-wide fence in each stage.
__device__ __forceinline__ void mbarrier_arrive(smem_addr_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_wait_parity(smem_addr_t barrier, int phase) {
    asm volatile("{\n.reg .pred p;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier), "r"(phase) : "memory");
}

// COUNT threads, in whole warps, wait for each other at named barrier 1.
template <int COUNT> __device__ __forceinline__ void named_barrier_sync() { asm volatile("bar.sync 1, %0;" ::"n"(COUNT) : "memory"); }

// True in one thread of the warp, always in the same one.
__device__ __forceinline__ bool elect_one() {
    unsigned int elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected;
}

// TMA loads of a box in tiled mode. Elements outside the tensor are zero in shared memory. `c` is the innermost coordinate.
__device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(row) : "memory");
}
__device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int row, int slice) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(row), "r"(slice) : "memory");
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
// A TMA load in im2col mode: consecutive channels from `c` on, of consecutive pixels of the traversal, at one tap of the filter.
// `coord` and `tap` are outermost first. An image with fewer than three spatial axes uses their last entries.
template <int SPATIAL>
__device__ __forceinline__ void tma_load_im2col(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int n, const int (&coord)[3], const int (&tap)[3]
) {
    const unsigned short o0 = (unsigned short)tap[0], o1 = (unsigned short)tap[1], o2 = (unsigned short)tap[2];
    if constexpr (SPATIAL == 1)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5}], [%2], {%6};"
                     ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(coord[2]), "r"(n), "h"(o2) : "memory");
    else if constexpr (SPATIAL == 2)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
                     ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(coord[2]), "r"(coord[1]), "r"(n), "h"(o2), "h"(o1) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};"
                     ::"r"(to), "l"(&map), "r"(barrier), "r"(c), "r"(coord[2]), "r"(coord[1]), "r"(coord[0]), "r"(n),
                     "h"(o2), "h"(o1), "h"(o0) : "memory");
}

// Prefetches a tensor map, 128 bytes of the kernel's parameters, before the first load uses it.
__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING of the latest wgmma groups are incomplete.
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving accumulators past this point. wgmma is asynchronous, so it writes them while other
// instructions run.
template <int COUNT> __device__ __forceinline__ void fence_accumulators(float (&accum)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(accum[i])::"memory");
}
template <int COUNT> __device__ __forceinline__ void fence_accumulators(int (&accum)[COUNT]) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(accum[i])::"memory");
}

// setmaxnreg: the producer warpgroup gives up registers, and consumer warpgroups take them for their accumulators.
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

template <class... Coord> __device__ __forceinline__ void tma_load_tile(smem_addr_t to, const TensorMap& map, smem_addr_t barrier, Coord... coord) {
    const int all[] = {coord...};
    emulated_tma_load_tile(to, &map, barrier, all, sizeof...(coord));
}
template <int SPATIAL>
__device__ __forceinline__ void tma_load_im2col(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int c, int n, const int (&coord)[3], const int (&tap)[3]
) {
    int all[SPATIAL + 2] = {c}, offset[SPATIAL];
    for (int d = 0; d < SPATIAL; ++d) all[1 + d] = coord[2 - d], offset[d] = tap[2 - d];
    all[SPATIAL + 1] = n;
    emulated_tma_load_im2col(to, &map, barrier, all, offset, SPATIAL + 2);
}

__device__ __forceinline__ void prefetch_tensormap(const TensorMap&) {}
__device__ __forceinline__ void wgmma_fence() {}
__device__ __forceinline__ void wgmma_commit() { emulated_warpgroup_commit(); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait() { emulated_warpgroup_wait(PENDING); }
template <class T, int COUNT> __device__ __forceinline__ void fence_accumulators(T (&)[COUNT]) {}
template <int COUNT> __device__ __forceinline__ void dealloc_registers() {}
template <int COUNT> __device__ __forceinline__ void alloc_registers() {}
#endif

// Orders this thread's reads of shared memory before the next TMA load into the same stage. An mbarrier arrival alone does not
// wait for reads in flight, and a TMA load can overtake them.
__device__ __forceinline__ void fence_proxy_async() {
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Initializes the mbarriers of a pipeline: the producer arrives once at `full`, and `empty_arrivals` consumer threads at `empty`.
template <int COUNT> __device__ __forceinline__ void init_pipeline(smem_addr_t full, smem_addr_t empty, int empty_arrivals) {
    for (int i = 0; i < COUNT; ++i) {
        mbarrier_init(full + 8 * i, 1);
        mbarrier_init(empty + 8 * i, empty_arrivals);
    }
}
