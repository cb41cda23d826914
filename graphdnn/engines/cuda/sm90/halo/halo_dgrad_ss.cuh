// Products of a strided data gradient whose rows are read from shared memory, once for each tap.

constexpr int RELEASES = 1;  // of a consumer, that free a stage

// The taps that read one copy of a block of channels; the first of each residue with the first block begins its sums. Products
// of one residue wait for each other: they take turns with those of others.
template <int COPY, int I> __device__ __forceinline__ void multiply_taps(
    Accum (&sum)[RESIDUES][ACCUMS], smem_addr_t pixels, smem_addr_t filters, int block, int k
) {
    constexpr int MEETING = MEETING_OF_TAP[I];
    if constexpr (COPY_OF_MEETING[MEETING] == COPY) {
        const smem_desc_t a = make_desc<false>(pixels) + SHIFT_OF_MEETING[MEETING] * (SWIZZLE_BYTES >> 4);
        const smem_desc_t b = filters_at(filters + I * FILTER_BYTES);
        wgmma_ss(sum[RESIDUE_OF_TAP[I]], a + k * DESC_STEP_K<false>, b + k * OF_STEP, BEGINS[I] && k == 0 ? block : 1);
    }
    if constexpr (I + 1 < TAPS) multiply_taps<COPY, I + 1>(sum, pixels, filters, block, k);
}

template <int COPY> __device__ __forceinline__ void multiply_copies(
    Accum (&sum)[RESIDUES][ACCUMS], const Ring& ring, PipelineState<STAGES>& pipe, int& previous, smem_addr_t filters, int block
) {
    mbarrier_wait_parity(ring.full + 8 * pipe.stage, pipe.phase);
    #pragma unroll
    for (int j = 0; j < RESIDUES; ++j) fence_accumulators(sum[j]);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; ++k) multiply_taps<COPY, 0>(sum, ring.stages + pipe.stage * STAGE_BYTES, filters, block, k);
    wgmma_commit();
    wgmma_wait<1>();
    // The copy before this one is read: its stage may be filled again.
    if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty + 8 * previous);
    previous = pipe.stage;
    pipe.advance();
    if constexpr (COPY + 1 < COPIES) multiply_copies<COPY + 1>(sum, ring, pipe, previous, filters, block);
}

__device__ __forceinline__ void multiply_block(
    Accum (&sum)[RESIDUES][ACCUMS], const Ring& ring, PipelineState<STAGES>& pipe, int& previous, smem_addr_t filters, int block
) {
    multiply_copies<0>(sum, ring, pipe, previous, filters, block);
}
__device__ __forceinline__ void free_last(const Ring& ring, int previous) {
    if (threadIdx.x % 128 == 0) mbarrier_arrive(ring.empty + 8 * previous);
}
