// Accumulators of split precision modulo 2^32, with three registers for four limb orders. Orders 0 and 1 have a register
// each. Orders 2 and 3 share one, because only two bytes of order 2 and one byte of order 3 count. Products of order 2 are
// added to the shared register as it is. For products of order 3 a byte permutation moves its lowest byte to the top and the
// next byte to the bottom; PACKED_BIAS fills the bytes between, so that two K steps of products never reach the top byte.

#include "hopper_pipeline.cuh"
#include "epilogue_store.cuh"
#include "limb_operands.cuh"

static_assert(MMA_K_STEPS % 2 == 0, "after two K steps the packed register has its original byte order");
constexpr unsigned int PERMUTE_FOR_ORDER_3 = 0x0541, PERMUTE_FOR_ORDER_2 = 0x2103;  // selectors of __byte_perm

struct LimbAccumulators {
    int low[2][ACCUMS], packed[ACCUMS];

    __device__ __forceinline__ void clear() {
        #pragma unroll
        for (int i = 0; i < ACCUMS; ++i) low[0][i] = low[1][i] = packed[i] = 0;
    }
    __device__ __forceinline__ void fence() { fence_accumulators(low[0]), fence_accumulators(low[1]), fence_accumulators(packed); }
    __device__ __forceinline__ Accum result(int i) const {
        return (Accum)((unsigned int)low[0][i] + ((unsigned int)low[1][i] << 8) + ((unsigned int)packed[i] << 16));
    }

    // Adds the products of the next `k_tiles` stages. Each K step permutes the packed register while the tensor cores multiply
    // the low orders, and splits the warp's next rows into limbs while they multiply the second high order.
    __device__ __forceinline__ void mainloop(const ConsumerSmem& smem, PipelineState<STAGES>& pipe, int k_tiles) {
        word_t a[2][LIMBS_A][4];
        if (k_tiles > 0) {
            mbarrier_wait_parity(smem.full + 8 * pipe.stage, pipe.phase);
            load_limbs<Element>(a[0], smem.memory, smem.fragment + pipe.stage * A_BYTES, 0);
        }
        #pragma unroll 1
        for (; k_tiles > 0; --k_tiles) {
            const int stage = pipe.stage;
            const smem_desc_t b = make_filter_desc(smem.b + stage * B_BYTES);
            pipe.advance();
            #pragma unroll
            for (int k = 0; k < MMA_K_STEPS; ++k) {
                const bool is_even = k % 2 == 0;
                fence();
                #pragma unroll
                for (int i = 0; i < LIMBS_A; ++i) fence_accumulators(a[k % 2][i]);
                wgmma_fence();
                wgmma_limb_order(packed, a[k % 2], b, k, is_even ? 2 : 3);
                wgmma_commit();
                wgmma_limb_order(low[0], a[k % 2], b, k, 0);
                wgmma_limb_order(low[1], a[k % 2], b, k, 1);
                wgmma_commit();
                wgmma_wait<1>();
                fence_accumulators(packed);
                #pragma unroll
                for (int i = 0; i < ACCUMS; ++i)
                    packed[i] = (int)__byte_perm(
                        (unsigned int)packed[i], PACKED_BIAS << 8, is_even ? PERMUTE_FOR_ORDER_3 : PERMUTE_FOR_ORDER_2
                    );
                fence_accumulators(packed);
                wgmma_fence();
                wgmma_limb_order(packed, a[k % 2], b, k, is_even ? 3 : 2);
                wgmma_commit();
                int next = stage;
                if (k + 1 == MMA_K_STEPS && k_tiles > 1) {
                    next = pipe.stage;
                    mbarrier_wait_parity(smem.full + 8 * next, pipe.phase);
                }
                load_limbs<Element>(a[(k + 1) % 2], smem.memory, smem.fragment + next * A_BYTES, (k + 1) % MMA_K_STEPS);
                wgmma_wait<0>();
            }
            smem.release(stage);
        }
        fence();
    }
};
