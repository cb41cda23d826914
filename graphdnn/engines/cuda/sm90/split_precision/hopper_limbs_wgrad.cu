// Filter gradients by products of planes of 16-bit floats, on the tensor cores of compute capability 9.0.
//
// As in hopper_gemm.cu a block has one warpgroup that copies and CONSUMERS that multiply, 64 rows each. What a
// stage is, limb_wgrad_stage.cuh says; what its products are added to, limb_wgrad_floats.cuh and limb_wgrad_integers.cuh.

constexpr int THREADS = 128 * (CONSUMERS + 1);

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_limbs_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const shared_t ring = shared_address(memory), full = ring + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        begin_ring<STAGES>(full, empty, CONSUMERS);
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
                announce(barrier, STAGE_BYTES);
                a = ring + turn.stage * STAGE_BYTES;
                b = a + A_BYTES;
                turn.advance();
            };
            for (int number = blockIdx.x; number < pieces; number += gridDim.x)
                fill_wgrad<PLANES, DEEP>(p, work_of(p, number), slot);
        }
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        const int consumer = warpgroup - 1;
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            const Work w = work_of(p, number);
            Sums sums;
            sums.begin();
            int previous = -1;
            #pragma unroll 1
            for (int step = w.first; step < w.last; ++step) {
                const int number_in_piece = step - w.first;
                await_phase(full + 8 * turn.stage, turn.parity);
                const shared_t stage = ring + turn.stage * STAGE_BYTES;
                const matrix_t a = panels_at(stage + consumer * DEEP_BYTES), b = panels_at(stage + A_BYTES);
                sums.pin_all();
                products_begin();
                sums.multiply_stage(a, b, number_in_piece);
                products_end();
                await_products<1>();
                // The step before this one is done: its stage may be filled again.
                if (previous >= 0 && threadIdx.x % 128 == 0) arrive(empty + 8 * previous);
                previous = turn.stage;
                turn.advance();
                if (PROMOTED > 0 && (number_in_piece % UNIT == UNIT - 1 || step + 1 == w.last)) {
                    await_products<0>();
                    sums.pin_all();
                    sums.promote();
                }
            }
            await_products<0>();
            if (number + (int)gridDim.x >= pieces) let_next_start();
            sums.pin_all();
            if (previous >= 0 && threadIdx.x % 128 == 0) arrive(empty + 8 * previous);
            leave_joined(p, w, number, consumer, sums);
        }
    }
}
