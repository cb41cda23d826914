// Convolutions of wide integers and of floats as products of planes on the tensor cores of compute capability 9.0.
//
// As in hopper_gemm.cu a block has one warpgroup that copies, and CONSUMERS that multiply 64 rows each, here out of
// registers: while the tensor cores work on one block of k, a warp splits its rows' next one into planes. Sums of equal
// weight are kept together and are joined at the end; those of floats are joined every PROMOTED stages, and added in float.

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int UNIT = PROMOTED > 0 ? PROMOTED : 1;
constexpr int A_BYTES = BM * ROW * BOXES, B_BYTES = BN * FILTER_ROW;
static_assert(BM == 64 * CONSUMERS && BN % 32 == 0 && BLOCKS % 2 == 0, "whole panels, and blocks in turn");
static_assert(A_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "rows of a stage are exchanged from its beginning on");
static_assert(!ACROSS_FILTER && AHEAD == 0, "filters lie along k here, nothing is fetched ahead");

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_planes(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const shared_t ring_a = shared_address(memory), ring_b = ring_a + STAGES * A_BYTES;
    const shared_t full = ring_b + STAGES * B_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, 4 * CONSUMERS);
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
        // Each warp frees a stage for itself: it has read its rows and multiplied them.
        const auto release = [&](int stage) {
            __syncwarp();
            if (threadIdx.x % 32 == 0) arrive(empty + 8 * stage);
        };
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            int left;  // steps
            {
                const Work w = work_of(p, number);
                left = w.last - w.first;
            }
            Sum sum[GROUPS][SUMS];
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) sum[g][i] = 0;
            Accumulator total[PROMOTED > 0 ? SUMS : 1];
            #pragma unroll
            for (int i = 0; i < (PROMOTED > 0 ? SUMS : 1); ++i) total[i] = 0;
            word_t part[2][PLANES_A][4];
            if (left > 0) {
                await_phase(full + 8 * turn.stage, turn.parity);
                load_planes<Element>(part[0], memory, lane_at + turn.stage * A_BYTES, 0);
            }
            bool is_begun = false;
            #pragma unroll 1
            for (; left > 0; --left) {
                const int stage = turn.stage;
                const matrix_t b = planes_at(ring_b + stage * B_BYTES);
                turn.advance();
                #pragma unroll
                for (int block = 0; block < BLOCKS; ++block) {
                    #pragma unroll
                    for (int g = 0; g < GROUPS; ++g) pin(sum[g]);
                    #pragma unroll
                    for (int i = 0; i < PLANES_A; ++i) pin(part[block % 2][i]);
                    products_begin();
                    multiply_block(sum, part[block % 2], b, block, PROMOTED > 0 && block == 0 ? left % UNIT : 1);
                    products_end();
                    // The block before this one is done: so are its registers and, if it was a stage's last, the stage.
                    await_products<1>();
                    if (block == 0 && is_begun) release(stage == 0 ? STAGES - 1 : stage - 1);
                    int next = stage;
                    if (block + 1 == BLOCKS && left > 1) {
                        next = turn.stage;
                        await_phase(full + 8 * next, turn.parity);
                    }
                    load_planes<Element>(part[(block + 1) % 2], memory, lane_at + next * A_BYTES, (block + 1) % BLOCKS);
                }
                is_begun = true;
                if constexpr (PROMOTED > 0) {
                    if (left % UNIT == 1 % UNIT) {
                        await_products<0>();
                        #pragma unroll
                        for (int g = 0; g < GROUPS; ++g) pin(sum[g]);
                        #pragma unroll
                        for (int i = 0; i < SUMS; ++i) total[i] += joined(sum, i);
                    }
                }
            }
            await_products<0>();
            if (number + (int)gridDim.x >= pieces) let_next_start();
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g) pin(sum[g]);
            if (is_begun) release(turn.stage == 0 ? STAGES - 1 : turn.stage - 1);
            // Where the results go is worked out here, so that it takes no registers from the sums.
            int same_number = number;
            asm volatile("" : "+r"(same_number));
            const Work w = work_of(p, same_number);
            const int piece = SPLIT ? number / (int)p.tiles : 0;
            Rows at = rows_of(p, w, consumer, 0);
            #pragma unroll
            for (int block = 0; block < BN / 32; ++block) {
                // Joined here and not all before: there are no registers for it.
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) pin(sum[g]);
                Accumulator some[16];
                #pragma unroll
                for (int i = 0; i < 16; ++i) {
                    if constexpr (PROMOTED > 0) some[i] = total[block * 16 + i];
                    else some[i] = joined(sum, block * 16 + i);
                }
                if constexpr (SPLIT) {
                    Accumulator* const to = p.partial + partial_at(p, piece, w.tile, consumer, 0, block);
                    #pragma unroll
                    for (int quarter = 0; quarter < 4; ++quarter) {
                        Pack<Accumulator, 4> pack;
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) pack.at[e] = some[4 * quarter + e];
                        store_pack<4>(to + quarter * 512, pack);
                    }
                } else leave_all<1>(p, w, at, block, some);
            }
        }
    }
}
