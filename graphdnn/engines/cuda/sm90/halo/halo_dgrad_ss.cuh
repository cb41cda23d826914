// Products of a strided data gradient whose rows are read from shared memory, once for each tap.

constexpr int SPEAKERS = 1;  // of a consumer, that free a stage

// The taps that read one copy of a block of channels; the first of each residue with the first block begins its sums. Products
// of one residue wait for each other: they take turns with those of others.
template <int COPY, int I> __device__ __forceinline__ void multiply_taps(
    Accumulator (&sum)[RESIDUES][SUMS], shared_t pixels, shared_t filters, int block, int k
) {
    constexpr int MEETING = MEETING_OF_TAP[I];
    if constexpr (COPY_OF_MEETING[MEETING] == COPY) {
        const matrix_t a = matrix_at<false>(pixels) + SHIFT_OF_MEETING[MEETING] * (ROW >> 4);
        const matrix_t b = filters_at(filters + I * FILTER_BYTES);
        multiply(sum[RESIDUE_OF_TAP[I]], a + k * NEXT_K<false>, b + k * OF_STEP, BEGINS[I] && k == 0 ? block : 1);
    }
    if constexpr (I + 1 < TAPS) multiply_taps<COPY, I + 1>(sum, pixels, filters, block, k);
}

template <int COPY> __device__ __forceinline__ void multiply_copies(
    Accumulator (&sum)[RESIDUES][SUMS], const Ring& ring, Turn<STAGES>& turn, int& previous, shared_t filters, int block
) {
    await_phase(ring.full + 8 * turn.stage, turn.parity);
    #pragma unroll
    for (int j = 0; j < RESIDUES; ++j) pin(sum[j]);
    products_begin();
    #pragma unroll
    for (int k = 0; k < 4; ++k) multiply_taps<COPY, 0>(sum, ring.stages + turn.stage * STAGE_BYTES, filters, block, k);
    products_end();
    await_products<1>();
    // The copy before this one is read: its stage may be filled again.
    if (previous >= 0 && threadIdx.x % 128 == 0) arrive(ring.empty + 8 * previous);
    previous = turn.stage;
    turn.advance();
    if constexpr (COPY + 1 < COPIES) multiply_copies<COPY + 1>(sum, ring, turn, previous, filters, block);
}

__device__ __forceinline__ void multiply_block(
    Accumulator (&sum)[RESIDUES][SUMS], const Ring& ring, Turn<STAGES>& turn, int& previous, shared_t filters, int block
) {
    multiply_copies<0>(sum, ring, turn, previous, filters, block);
}
__device__ __forceinline__ void free_last(const Ring& ring, int previous) {
    if (threadIdx.x % 128 == 0) arrive(ring.empty + 8 * previous);
}
