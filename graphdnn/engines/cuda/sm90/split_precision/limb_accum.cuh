// Sums of planes' products, those of one weight together, joined at the end. While the tensor cores work on one block of
// k, a warp splits its rows' next one into planes. Sums of floats are joined every PROMOTED stages and added in float.

constexpr int UNIT = PROMOTED > 0 ? PROMOTED : 1;
static_assert(BLOCKS % 2 == 0, "blocks take turns in two sets of registers");

struct Sums {
    Sum of[GROUPS][SUMS];
    Accumulator total[PROMOTED > 0 ? SUMS : 1];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g)
            #pragma unroll
            for (int i = 0; i < SUMS; ++i) of[g][i] = 0;
        #pragma unroll
        for (int i = 0; i < (PROMOTED > 0 ? SUMS : 1); ++i) total[i] = 0;
    }
    __device__ __forceinline__ void pin_all() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g) pin(of[g]);
    }
    __device__ __forceinline__ Accumulator result(int i) const {
        if constexpr (PROMOTED > 0) return total[i];
        else return joined(of, i);
    }

    // `left` stages from the ring.
    __device__ __forceinline__ void add_stages(const Ring& ring, Turn<STAGES>& turn, int left) {
        word_t part[2][PLANES_A][4];
        if (left > 0) {
            await_phase(ring.full + 8 * turn.stage, turn.parity);
            load_planes<Element>(part[0], ring.memory, ring.lane_at + turn.stage * A_BYTES, 0);
        }
        bool is_begun = false;
        #pragma unroll 1
        for (; left > 0; --left) {
            const int stage = turn.stage;
            const matrix_t b = planes_at(ring.b + stage * B_BYTES);
            turn.advance();
            #pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                pin_all();
                #pragma unroll
                for (int i = 0; i < PLANES_A; ++i) pin(part[block % 2][i]);
                products_begin();
                multiply_block(of, part[block % 2], b, block, PROMOTED > 0 && block == 0 ? left % UNIT : 1);
                products_end();
                // The block before this one is done: so are its registers and, if it was a stage's last, the stage.
                await_products<1>();
                if (block == 0 && is_begun) ring.release(stage == 0 ? STAGES - 1 : stage - 1);
                int next = stage;
                if (block + 1 == BLOCKS && left > 1) {
                    next = turn.stage;
                    await_phase(ring.full + 8 * next, turn.parity);
                }
                load_planes<Element>(part[(block + 1) % 2], ring.memory, ring.lane_at + next * A_BYTES, (block + 1) % BLOCKS);
            }
            is_begun = true;
            if constexpr (PROMOTED > 0) {
                if (left % UNIT == 1 % UNIT) {
                    await_products<0>();
                    pin_all();
                    #pragma unroll
                    for (int i = 0; i < SUMS; ++i) total[i] += joined(of, i);
                }
            }
        }
        await_products<0>();
        pin_all();
        if (is_begun) ring.release(turn.stage == 0 ? STAGES - 1 : turn.stage - 1);
    }
};
