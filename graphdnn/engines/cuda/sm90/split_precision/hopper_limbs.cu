// Convolutions of wide integers and of floats as products of planes on the tensor cores of compute capability 9.0.
//
// As in hopper_gemm.cu a block has one warpgroup that copies, and CONSUMER_WARPGROUPS that multiply 64 rows each, here out of
// registers (limb_accum.cuh, limb_accum_packed.cuh).

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_limbs(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t ring_a = smem_addr(memory), ring_b = ring_a + STAGES * A_BYTES;
    const smem_addr_t full = ring_b + STAGES * B_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(full, empty, 4 * CONSUMER_WARPGROUPS);
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
                mbarrier_expect_tx(barrier, A_BYTES + B_BYTES);
                a = ring_a + pipe.stage * A_BYTES;
                b = ring_b + pipe.stage * B_BYTES;
                pipe.advance();
            };
            for (int number = blockIdx.x; number < pieces; number += gridDim.x) fill_planes(p, decode_work_tile(p, number), acquire);
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1;
        const int lane_at = lane_in_rows((consumer * 64 + warp * 16) * SWIZZLE_BYTES);
        const Ring ring = {memory, lane_at, ring_b, full, empty};
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            int left;  // steps
            {
                const WorkTile w = decode_work_tile(p, number);
                left = w.last - w.first;
            }
            Sums sums;
            sums.begin();
            sums.add_stages(ring, pipe, left);
            if (number + (int)gridDim.x >= pieces) pdl_trigger();
            // Where the results go is worked out here, so that it takes no registers from the sums.
            int same_number = number;
            asm volatile("" : "+r"(same_number));
            const WorkTile w = decode_work_tile(p, same_number);
            leave_joined(p, w, number, consumer, sums);
        }
    }
}
