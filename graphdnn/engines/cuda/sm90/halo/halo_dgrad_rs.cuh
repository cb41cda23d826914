// Products of a strided data gradient whose rows pass through registers, once for all taps that read the same; those of a step
// are read while the step's before are multiplied.

constexpr int RELEASES = 4;  // of a consumer, that free a stage: each warp has read for itself

constexpr int MEETINGS = sizeof(COPY_OF_MEETING) / sizeof(int);
typedef unsigned int Fragments[MEETINGS][4];

__device__ __forceinline__ void fence_accumulators(Fragments& a) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < MEETINGS; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
#endif
}

template <int I> __device__ __forceinline__ void multiply_held(
    Accum (&sum)[RESIDUES][ACCUMS], Fragments& a, smem_addr_t filters, int block, int k
) {
    const smem_desc_t b = filters_at(filters + I * FILTER_BYTES) + k * OF_STEP;
    wgmma_rs(sum[RESIDUE_OF_TAP[I]], a[MEETING_OF_TAP[I]], b, BEGINS[I] && k == 0 ? block : 1);
    if constexpr (I + 1 < TAPS) multiply_held<I + 1>(sum, a, filters, block, k);
}

// All copies of a block of channels at once: nobody waits between reading rows and multiplying them.
__device__ __forceinline__ void multiply_block(
    Accum (&sum)[RESIDUES][ACCUMS], const Ring& ring, PipelineState<STAGES>& pipe, int&, smem_addr_t filters, int block
) {
    const int lane = (int)threadIdx.x % 32;
    wgmma_wait<0>();
    int from[COPIES], stage[COPIES];
    #pragma unroll
    for (int i = 0; i < COPIES; ++i, pipe.advance()) {
        mbarrier_wait_parity(ring.full + 8 * pipe.stage, pipe.phase);
        stage[i] = pipe.stage;
        from[i] = pipe.stage * STAGE_BYTES;
    }
    Fragments a[2];
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
        wgmma_wait<1>();
        fence_accumulators(a[k % 2]);
        #pragma unroll
        for (int i = 0; i < MEETINGS; ++i) {
            const int row = (int)threadIdx.x / 32 % 4 * 16 + lane % 16 + SHIFT_OF_MEETING[i];
            ldmatrix_x4<false>(a[k % 2][i], ring.memory, from[COPY_OF_MEETING[i]] + row * SWIZZLE_BYTES + (((2 * k + lane / 16) ^ row % 8) << 4));
        }
        fence_accumulators(a[k % 2]);
        #pragma unroll
        for (int j = 0; j < RESIDUES; ++j) fence_accumulators(sum[j]);
        wgmma_fence();
        multiply_held<0>(sum, a[k % 2], filters, block, k);
        wgmma_commit();
    }
    // Products have taken what this warp read, so it was read.
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < COPIES; ++i)
        if (lane == 0) mbarrier_arrive(ring.empty + 8 * stage[i]);
}
__device__ __forceinline__ void free_last(const Ring&, int) {}
