// Filter gradients by split precision: products of 16-bit limbs of x and dy, on the tensor cores of compute capability 9.0.
//
// Algorithm:  dw = sum over pixels of x dy, where x = sum_i x_i and dy = sum_j dy_j are sums of bfloat16 limbs that
//             split_image_limbs.cu has written to memory. Every K tile multiplies several pairs of limbs.
// Tile:       TILE_M x TILE_N of dw, with 64 rows for each consumer warpgroup. A K tile is STAGE_K pixels (limb_wgrad_stage.cuh).
// Pipeline:   STAGES stages. TMA bytes complete `full`, one arrival of each consumer warpgroup completes `empty`.
// Warp roles: one thread of warpgroup 0 issues TMA; the other warpgroups issue wgmma with both operands in shared memory.
// Layout:     both operands are MN-major, in slabs of 64 channels with 128-byte swizzle; pixels are NHWC.
// Epilogue:   the accumulators are combined, 32 columns at a time, then stored (epilogue_limbs.cuh). The accumulators are promoted
//             every PROMOTION_INTERVAL K tiles (limb_wgrad_floats.cuh, limb_wgrad_integers.cuh).
//
// Required constants (from the generator):
//   TILE_M, TILE_N, STAGES, STAGE_K     the tile, the stages of the pipeline, and the pixels of a stage (a multiple of 16)
//   CONSUMER_WARPGROUPS                 TILE_M / 64
//   CONSUMER_REGS, PRODUCER_REGS        registers of a consumer thread and of a producer thread
//   LIMBS                               limbs of an element of either operand
//   LIMB_ORDERS                         orders i + j that have accumulators of their own (limb_wgrad_integers.cuh)
//   PROMOTION_INTERVAL                  K tiles between promotions; 0: no promotion
//   and the constants of conv_work_tile.cuh, epilogue_store.cuh and split_k_partials.cuh
//
// Variants (from the generator): INTEGER_LIMBS: 1: exact integers; 0: limbs of float32.

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_limbs.cuh"
#include "limb_wgrad_stage.cuh"
#if INTEGER_LIMBS
#include "limb_wgrad_integers.cuh"
#else
#include "limb_wgrad_floats.cuh"
#endif

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_limbs_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t stages = smem_addr(memory), full = stages + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, CONSUMER_WARPGROUPS);
        fence_barrier_init();
    }
    __syncthreads();
    pdl_wait();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int items = (int)p.tiles * (SPLIT_K ? (int)p.splits : 1);
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            const auto acquire = [&](smem_addr_t& a, smem_addr_t& b, smem_addr_t& barrier) {
                mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                barrier = full + 8 * pipe.stage;
                mbarrier_expect_tx(barrier, STAGE_BYTES);
                a = stages + pipe.stage * STAGE_BYTES;
                b = a + A_BYTES;
                pipe.advance();
            };
            for (int item = blockIdx.x; item < items; item += gridDim.x)
                load_wgrad_k_tiles<LIMBS, STAGE_K>(p, decode_work_tile(p, item), acquire);
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1;
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            const WorkTile w = decode_work_tile(p, item);
            LimbAccumulators accum;
            accum.clear();
            int previous = -1;
            #pragma unroll 1
            for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
                const int index = k_tile - w.k_begin;
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const smem_addr_t stage = stages + pipe.stage * STAGE_BYTES;
                const smem_desc_t a = make_slab_desc(stage + consumer * STAGE_SLAB_BYTES), b = make_slab_desc(stage + A_BYTES);
                accum.fence();
                wgmma_fence();
                accum.multiply_stage(a, b, index);
                wgmma_commit();
                wgmma_wait<1>();
                // The previous K tile's wgmma has finished, so the producer may fill its stage.
                if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * previous);
                previous = pipe.stage;
                pipe.advance();
                if (PROMOTION_INTERVAL > 0 && (index % PROMOTION_PERIOD == PROMOTION_PERIOD - 1 || k_tile + 1 == w.k_end)) {
                    wgmma_wait<0>();
                    accum.fence();
                    accum.promote();
                }
            }
            wgmma_wait<0>();
            if (item + (int)gridDim.x >= items) pdl_trigger();
            accum.fence();
            if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * previous);
            epilogue_store_limbs(p, w, item, consumer, accum);
        }
    }
}
