// Filter gradients of floats by products of planes of 16-bit floats, on the tensor cores of compute capability 9.0.
//
// As in hopper_gemm.cu a block has one warpgroup that copies and CONSUMERS that multiply, 64 rows each. A stage has DEEP pixels
// of all planes of both operands. The product of the first planes and those of the others have sums of their own; with
// PROMOTED they are joined after so many stages and added apart.

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int DEEP_BYTES = DEEP * ROW;  // of 64 channels
constexpr int A_PLANE = BM / 64 * DEEP_BYTES, B_PLANE = BN / 64 * DEEP_BYTES, A_BYTES = PLANES * A_PLANE, STAGE_BYTES = A_BYTES + PLANES * B_PLANE;
static_assert(WGRAD && !(TURNED || ACROSS_FILTER || PERMUTED), "a filter gradient reads no filter");
static_assert(BM == 64 * CONSUMERS && BN % PANEL == 0 && DEEP % 16 == 0, "whole panels");

// As matrix_at<true>, of panels of DEEP steps of k.
__device__ __forceinline__ matrix_t panels_at(shared_t address) {
    const matrix_t between_panels = DEEP_BYTES >> 4, between_eights = (8 * ROW) >> 4, swizzled = 1;
    return (matrix_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}

// Parts of an infinity are infinity, NaN and NaN: what they add to the small sums is not wanted.
__device__ __forceinline__ float joined(const float (&sum)[2][SUMS], int i) {
    const float all = sum[1][i] + sum[0][i];
    return fabsf(all) < INFINITY ? all : sum[1][i];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_float_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const shared_t ring = shared_address(memory), full = ring + STAGES * STAGE_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, CONSUMERS);
        }
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
            float sum[2][SUMS], promoted[SUMS];
            #pragma unroll
            for (int i = 0; i < SUMS; ++i) sum[0][i] = sum[1][i] = promoted[i] = 0;
            int previous = -1;
            #pragma unroll 1
            for (int step = w.first; step < w.last; ++step) {
                const int unpromoted = PROMOTED > 0 ? (step - w.first) % PROMOTED : 1;
                await_phase(full + 8 * turn.stage, turn.parity);
                const shared_t stage = ring + turn.stage * STAGE_BYTES;
                const matrix_t a = panels_at(stage + consumer * DEEP_BYTES), b = panels_at(stage + A_BYTES);
                pin(sum[0]);
                pin(sum[1]);
                products_begin();
                #pragma unroll
                for (int k = 0; k < DEEP / 16; ++k)
                    #pragma unroll
                    for (int weight = PLANES - 1; weight >= 0; --weight)  // the smallest products first
                        #pragma unroll
                        for (int i = 0; i <= weight; ++i)
                            multiply(
                                sum[weight == 0], a + (i * A_PLANE >> 4) + k * NEXT_K<true>,
                                b + ((weight - i) * B_PLANE >> 4) + k * NEXT_K<true>,
                                k == 0 && i == 0 && (weight == 0 || weight == PLANES - 1) ? unpromoted : 1
                            );
                products_end();
                await_products<1>();
                // The step before this one is done: its stage may be filled again.
                if (previous >= 0 && threadIdx.x % 128 == 0) arrive(empty + 8 * previous);
                previous = turn.stage;
                turn.advance();
                if (PROMOTED > 0 && (unpromoted == PROMOTED - 1 || step + 1 == w.last)) {
                    await_products<0>();
                    pin(sum[0]);
                    pin(sum[1]);
                    #pragma unroll
                    for (int i = 0; i < SUMS; ++i) promoted[i] += joined(sum, i);
                }
            }
            await_products<0>();
            if (number + (int)gridDim.x >= pieces) let_next_start();
            pin(sum[0]);
            pin(sum[1]);
            if (previous >= 0 && threadIdx.x % 128 == 0) arrive(empty + 8 * previous);
            const Rows at = rows_of(p, w, consumer, 0);
            #pragma unroll
            for (int block = 0; block < BN / 32; ++block) {
                float some[16];
                #pragma unroll
                for (int i = 0; i < 16; ++i) some[i] = PROMOTED > 0 ? promoted[block * 16 + i] : joined(sum, block * 16 + i);
                if constexpr (SPLIT) {
                    store_partial(p, number / (int)p.tiles, piece_number(w.tile, consumer, 0, block), some);
                } else leave_all<1>(p, w, at, block, some);
            }
        }
    }
}
