// Sums modulo 2^32: weights 0 and 1 apart, 2 and 3 in one register. Of weight 2 two bytes count, of weight 3 one. Products
// of weight 2 are added to the register as it is; for those of weight 3 its lowest byte goes to the top and the next one to
// the bottom, and what they add in two blocks of k, with HIGH_START below it, never reaches the top byte.

static_assert(BLOCKS % 2 == 0, "after two blocks the register lies as before them");
constexpr unsigned int HIGHEST_FIRST = 0x0541, BACK_AGAIN = 0x2103;  // as __byte_perm counts bytes

struct Sums {
    int low[2][ACCUMS], high[ACCUMS];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) low[0][i] = low[1][i] = high[i] = 0;
    }
    __device__ __forceinline__ void pin_all() { fence_accumulators(low[0]), fence_accumulators(low[1]), fence_accumulators(high); }
    __device__ __forceinline__ Accum result(int i) const {
        return (Accum)((unsigned int)low[0][i] + ((unsigned int)low[1][i] << 8) + ((unsigned int)high[i] << 16));
    }

    // `left` stages from the ring. While products of low weights are multiplied the register of the high ones is turned,
    // and a warp splits its rows' next block into planes while the last ones are.
    __device__ __forceinline__ void add_stages(const Ring& ring, PipelineState<STAGES>& pipe, int left) {
        word_t part[2][PLANES_A][4];
        if (left > 0) {
            mbarrier_wait_parity(ring.full + 8 * pipe.stage, pipe.phase);
            load_planes<Element>(part[0], ring.memory, ring.lane_at + pipe.stage * A_BYTES, 0);
        }
        #pragma unroll 1
        for (; left > 0; --left) {
            const int stage = pipe.stage;
            const smem_desc_t b = planes_at(ring.b + stage * B_BYTES);
            pipe.advance();
            #pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                const bool is_even = block % 2 == 0;
                pin_all();
                #pragma unroll
                for (int i = 0; i < PLANES_A; ++i) fence_accumulators(part[block % 2][i]);
                wgmma_fence();
                multiply_weight(high, part[block % 2], b, block, is_even ? 2 : 3);
                wgmma_commit();
                multiply_weight(low[0], part[block % 2], b, block, 0);
                multiply_weight(low[1], part[block % 2], b, block, 1);
                wgmma_commit();
                wgmma_wait<1>();
                fence_accumulators(high);
                #pragma unroll
                for (int i = 0; i < ACCUMS; ++i)
                    high[i] = (int)__byte_perm(
                        (unsigned int)high[i], HIGH_START << 8, is_even ? HIGHEST_FIRST : BACK_AGAIN
                    );
                fence_accumulators(high);
                wgmma_fence();
                multiply_weight(high, part[block % 2], b, block, is_even ? 3 : 2);
                wgmma_commit();
                int next = stage;
                if (block + 1 == BLOCKS && left > 1) {
                    next = pipe.stage;
                    mbarrier_wait_parity(ring.full + 8 * next, pipe.phase);
                }
                load_planes<Element>(part[(block + 1) % 2], ring.memory, ring.lane_at + next * A_BYTES, (block + 1) % BLOCKS);
                wgmma_wait<0>();
            }
            ring.release(stage);
        }
        pin_all();
    }
};
