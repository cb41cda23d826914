// Filter gradients by products of planes of 16-bit floats, on the tensor cores of compute capability 9.0.
//
// As in hopper_gemm.cu a block has one warpgroup that copies and CONSUMER_WARPGROUPS that multiply, 64 rows each. What a
// stage is, limb_wgrad_stage.cuh says; what its products are added to, limb_wgrad_floats.cuh and limb_wgrad_integers.cuh.

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_limbs_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t ring = smem_addr(memory), full = ring + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, CONSUMER_WARPGROUPS);
        fence_barrier_init();
    }
    __syncthreads();
    pdl_wait();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int pieces = (int)p.tiles * (SPLIT_K ? (int)p.splits : 1);
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            const auto acquire = [&](smem_addr_t& a, smem_addr_t& b, smem_addr_t& barrier) {
                mbarrier_wait_parity(empty + 8 * pipe.stage, pipe.phase ^ 1);
                barrier = full + 8 * pipe.stage;
                mbarrier_expect_tx(barrier, STAGE_BYTES);
                a = ring + pipe.stage * STAGE_BYTES;
                b = a + A_BYTES;
                pipe.advance();
            };
            for (int number = blockIdx.x; number < pieces; number += gridDim.x)
                load_wgrad_k_tiles<PLANES, STAGE_K>(p, decode_work_tile(p, number), acquire);
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1;
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            const WorkTile w = decode_work_tile(p, number);
            Sums sums;
            sums.begin();
            int previous = -1;
            #pragma unroll 1
            for (int step = w.first; step < w.last; ++step) {
                const int number_in_piece = step - w.first;
                mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
                const smem_addr_t stage = ring + pipe.stage * STAGE_BYTES;
                const smem_desc_t a = panels_at(stage + consumer * DEEP_BYTES), b = panels_at(stage + A_BYTES);
                sums.pin_all();
                wgmma_fence();
                sums.multiply_stage(a, b, number_in_piece);
                wgmma_commit();
                wgmma_wait<1>();
                // The step before this one is done: its stage may be filled again.
                if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * previous);
                previous = pipe.stage;
                pipe.advance();
                if (PROMOTION_INTERVAL > 0 && (number_in_piece % UNIT == UNIT - 1 || step + 1 == w.last)) {
                    wgmma_wait<0>();
                    sums.pin_all();
                    sums.promote();
                }
            }
            wgmma_wait<0>();
            if (number + (int)gridDim.x >= pieces) pdl_trigger();
            sums.pin_all();
            if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * previous);
            leave_joined(p, w, number, consumer, sums);
        }
    }
}
