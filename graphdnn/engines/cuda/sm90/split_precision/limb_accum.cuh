// Sums of planes' products, those of one weight together, joined at the end. While the tensor cores work on one block of
// k, a warp splits its rows' next one into planes. Sums of floats are joined every PROMOTION_INTERVAL stages and added in float.

constexpr int UNIT = PROMOTION_INTERVAL > 0 ? PROMOTION_INTERVAL : 1;
static_assert(BLOCKS % 2 == 0, "blocks take turns in two sets of registers");

struct Sums {
    Sum of[GROUPS][ACCUMS];
    Accum total[PROMOTION_INTERVAL > 0 ? ACCUMS : 1];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i) of[g][i] = 0;
        #pragma unroll
        for (int i = 0; i < (PROMOTION_INTERVAL > 0 ? ACCUMS : 1); ++i) total[i] = 0;
    }
    __device__ __forceinline__ void pin_all() {
        #pragma unroll
        for (int g = 0; g < GROUPS; ++g) fence_accumulators(of[g]);
    }
    __device__ __forceinline__ Accum result(int i) const {
        if constexpr (PROMOTION_INTERVAL > 0) return total[i];
        else return combine_limbs(of, i);
    }

    // `left` stages from the ring.
    __device__ __forceinline__ void add_stages(const Ring& ring, PipelineState<STAGES>& pipe, int left) {
        word_t part[2][PLANES_A][4];
        if (left > 0) {
            mbarrier_wait_parity(ring.full + 8 * pipe.stage, pipe.phase);
            load_planes<Element>(part[0], ring.memory, ring.lane_at + pipe.stage * A_BYTES, 0);
        }
        bool is_begun = false;
        #pragma unroll 1
        for (; left > 0; --left) {
            const int stage = pipe.stage;
            const smem_desc_t b = planes_at(ring.b + stage * B_BYTES);
            pipe.advance();
            #pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                pin_all();
                #pragma unroll
                for (int i = 0; i < PLANES_A; ++i) fence_accumulators(part[block % 2][i]);
                wgmma_fence();
                multiply_block(of, part[block % 2], b, block, PROMOTION_INTERVAL > 0 && block == 0 ? left % UNIT : 1);
                wgmma_commit();
                // The block before this one is done: so are its registers and, if it was a stage's last, the stage.
                wgmma_wait<1>();
                if (block == 0 && is_begun) ring.release(stage == 0 ? STAGES - 1 : stage - 1);
                int next = stage;
                if (block + 1 == BLOCKS && left > 1) {
                    next = pipe.stage;
                    mbarrier_wait_parity(ring.full + 8 * next, pipe.phase);
                }
                load_planes<Element>(part[(block + 1) % 2], ring.memory, ring.lane_at + next * A_BYTES, (block + 1) % BLOCKS);
            }
            is_begun = true;
            if constexpr (PROMOTION_INTERVAL > 0) {
                if (left % UNIT == 1 % UNIT) {
                    wgmma_wait<0>();
                    pin_all();
                    #pragma unroll
                    for (int i = 0; i < ACCUMS; ++i) total[i] += combine_limbs(of, i);
                }
            }
        }
        wgmma_wait<0>();
        pin_all();
        if (is_begun) ring.release(pipe.stage == 0 ? STAGES - 1 : pipe.stage - 1);
    }
};
