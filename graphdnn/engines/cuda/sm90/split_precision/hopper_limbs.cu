// Convolutions of wide integers and of fp32 by split precision, on the tensor cores of compute capability 9.0 (fprop, dgrad).
//
// Algorithm:  each operand is a sum of narrow limbs (bytes, or bfloat16 numbers). For x = sum_i x_i and w = sum_j w_j the kernel
//             computes sum_(i,j) x_i w_j by wgmma. Products whose limbs have the same order i + j share accumulators.
// Tile:       TILE_M x TILE_N of the implicit GEMM, with 64 rows for each consumer warpgroup. A K tile is CHANNELS channels of one
//             tap: MMA_K_STEPS instructions along K for every pair of limbs.
// Pipeline:   STAGES stages. TMA bytes complete `full`, one arrival of each consumer warp completes `empty`.
// Warp roles: one thread of warpgroup 0 issues TMA. The other warpgroups load A from shared memory, split it into limbs in
//             registers, and issue wgmma with A in registers and B in shared memory.
// Layout:     A is the im2col operand in its own type, BOXES boxes of 128-byte rows, 128-byte swizzle. B holds the filter's limbs,
//             which split_filter_limbs.cu has computed, in rows of FILTER_SWIZZLE_BYTES with the swizzle of that span.
// Epilogue:   the accumulators of all orders are combined, 32 columns at a time, then stored (epilogue_limbs.cuh).
//
// Required constants (from the generator):
//   TILE_M, TILE_N, STAGES              the tile, and the stages of the pipeline
//   CONSUMER_WARPGROUPS                 TILE_M / 64
//   CONSUMER_REGS, PRODUCER_REGS        registers of a consumer thread and of a producer thread
//   LIMBS_A, LIMBS_B                    limbs of an im2col element and of a filter element
//   BOXES, CHANNELS, MMA_K_STEPS        128-byte boxes, channels, and MMA K steps of one K tile; MMA_K_STEPS is even
//   FILTER_ROW_BYTES                    bytes of all limbs of one filter row in a K tile
//   FILTER_SWIZZLE_BYTES                swizzle span of the filter's limbs: 128, 64 or 32
//   limb_accum.cuh: LIMB_ORDERS, PROMOTION_INTERVAL, type MmaAccum; limb_accum_packed.cuh: PACKED_BIAS
//   and the constants of conv_work_tile.cuh, epilogue_store.cuh and split_k_partials.cuh
//
// Variants (from the generator): PACKED_ACCUMULATORS: 1: three registers for four orders of limbs.

#include "pdl.cuh"
#include "limbs.cuh"
#include "ldmatrix.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_limbs.cuh"
#include "limb_operands.cuh"
#if PACKED_ACCUMULATORS
#include "limb_accum_packed.cuh"
#else
#include "limb_accum.cuh"
#endif

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_limbs(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t stages_a = smem_addr(memory), stages_b = stages_a + STAGES * A_BYTES;
    const smem_addr_t full = stages_b + STAGES * B_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, 4 * CONSUMER_WARPGROUPS);
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
                mbarrier_expect_tx(barrier, A_BYTES + B_BYTES);
                a = stages_a + pipe.stage * A_BYTES;
                b = stages_b + pipe.stage * B_BYTES;
                pipe.advance();
            };
            for (int item = blockIdx.x; item < items; item += gridDim.x) load_limb_k_tiles(p, decode_work_tile(p, item), acquire);
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1;
        const int fragment = thread_fragment_offset((consumer * 64 + warp * 16) * SWIZZLE_BYTES);
        const ConsumerSmem smem = {memory, fragment, stages_b, full, empty};
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            int k_tiles;
            {
                const WorkTile w = decode_work_tile(p, item);
                k_tiles = w.k_end - w.k_begin;
            }
            LimbAccumulators accum;
            accum.clear();
            accum.mainloop(smem, pipe, k_tiles);
            if (item + (int)gridDim.x >= items) pdl_trigger();
            // The epilogue decodes the tile again, so that the tile takes no registers during the main loop. The assembly
            // hides from the compiler that both tiles are the same.
            int same_item = item;
            asm volatile("" : "+r"(same_item));
            const WorkTile w = decode_work_tile(p, same_item);
            epilogue_store_limbs(p, w, item, consumer, accum);
        }
    }
}
