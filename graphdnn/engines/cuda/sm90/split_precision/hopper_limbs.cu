// Convolutions of wide integers and of floats as products of planes on the tensor cores of compute capability 9.0.
//
// As in hopper_gemm.cu a block has one warpgroup that copies, and CONSUMERS that multiply 64 rows each, here out of
// registers (limb_accum.cuh, limb_accum_packed.cuh).

constexpr int THREADS = 128 * (CONSUMERS + 1);

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_limbs(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const shared_t ring_a = shared_address(memory), ring_b = ring_a + STAGES * A_BYTES;
    const shared_t full = ring_b + STAGES * B_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        begin_ring<STAGES>(full, empty, 4 * CONSUMERS);
        publish_barriers();
    }
    __syncthreads();
    wait_for_launch_before();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int pieces = (int)p.tiles * (SPLIT ? (int)p.parts : 1);
    Turn<STAGES> turn;
    if (warpgroup == 0) {
        give_registers<COPYING_REGISTERS>();
        if (warp == 0 && is_elected()) {
            const auto slot = [&](shared_t& a, shared_t& b, shared_t& barrier) {
                await_phase(empty + 8 * turn.stage, turn.parity ^ 1);
                barrier = full + 8 * turn.stage;
                announce(barrier, A_BYTES + B_BYTES);
                a = ring_a + turn.stage * A_BYTES;
                b = ring_b + turn.stage * B_BYTES;
                turn.advance();
            };
            for (int number = blockIdx.x; number < pieces; number += gridDim.x) fill_planes(p, work_of(p, number), slot);
        }
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        const int consumer = warpgroup - 1;
        const int lane_at = lane_in_rows((consumer * 64 + warp * 16) * ROW);
        const Ring ring = {memory, lane_at, ring_b, full, empty};
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            int left;  // steps
            {
                const Work w = work_of(p, number);
                left = w.last - w.first;
            }
            Sums sums;
            sums.begin();
            sums.add_stages(ring, turn, left);
            if (number + (int)gridDim.x >= pieces) let_next_start();
            // Where the results go is worked out here, so that it takes no registers from the sums.
            int same_number = number;
            asm volatile("" : "+r"(same_number));
            const Work w = work_of(p, same_number);
            leave_joined(p, w, number, consumer, sums);
        }
    }
}
