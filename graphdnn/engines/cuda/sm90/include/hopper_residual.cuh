// An operand as large as the result that the epilogue reads: the copy unit brings a tile's part of it through the ring, after
// the last step of the tile's products, so that nobody waits for memory when sums leave.
//
// A panel is a tile's pixels, 128 bytes of channels each; a stage has room for one where it has the pixels of a step, and for
// more where it has the filters'.

constexpr int SPEAKERS = 4;  // of a warpgroup, that free a stage: each warp has read for itself
constexpr int PANEL_CHANNELS = ROW / (int)sizeof(Residual), PANELS = (HELD_N + PANEL_CHANNELS - 1) / PANEL_CHANNELS;
constexpr int PANEL_ROOM = 1 + HELD_N / HELD_M, PANELS_HELD = PANEL_ROOM < PANELS ? PANEL_ROOM : PANELS;
constexpr int CHANNELS_HELD = PANELS_HELD * PANEL_CHANNELS;  // by a stage
constexpr int STAGES_TAKEN = (PANELS + PANELS_HELD - 1) / PANELS_HELD;
static_assert((MI == 1 && !PAIRED) || STAGES_TAKEN <= STAGES, "all of them at once, where their rows come in turns");

__device__ __forceinline__ void fetch_residual_map(const Params& p) { fetch_map(p.residual[0]); }

template <class Slot> __device__ __forceinline__ void copy_residual(const Params& p, const Work& w, Slot slot) {
    #pragma unroll 1
    for (int first = 0; first < PANELS; first += PANELS_HELD) {
        const int count = PANELS - first < PANELS_HELD ? PANELS - first : PANELS_HELD;
        shared_t a, b, barrier;
        slot(a, b, barrier, count * HELD_M * ROW);
        const shared_t pixels = TURNED ? b : a, filters = TURNED ? a : b;
        #pragma unroll 1
        for (int i = 0; i < count; ++i)
            copy_box(
                i == 0 ? pixels : filters + (i - 1) * HELD_M * ROW, p.residual[0], barrier,
                w.tile_n * HELD_N + (first + i) * PANEL_CHANNELS, 0, w.tile_m * HELD_M
            );
    }
}

// A pixel's neighbouring channels out of a stage's panels. A rehearsal reads whatever lies there, without a branch; the
// emulator would see that as a mistake.
__device__ __forceinline__ void read_panel(
    const unsigned char* ring, int stage, int pixel, int channel, [[maybe_unused]] bool is_real, Residual (&to)[WIDTH]
) {
#ifdef GRAPHDNN_EMULATED
    if (!is_real) return;
#endif
    const int panel = channel / PANEL_CHANNELS, byte = channel % PANEL_CHANNELS * (int)sizeof(Residual);
    const int pixels = TURNED ? STAGES * BM + stage * BN : stage * BM, filters = TURNED ? stage * BM : STAGES * BM + stage * BN;
    const int row = (panel == 0 ? pixels : filters + (panel - 1) * HELD_M) + pixel;
    const unsigned char* const from = ring + row * ROW + (byte / 16 ^ pixel % 8) * 16 + byte % 16;
    const Pack<Residual, WIDTH> pack = *(const Pack<Residual, WIDTH>*)from;
    #pragma unroll
    for (int e = 0; e < WIDTH; ++e) to[e] = pack.at[e];
}

// What the epilogue keeps, with a thread's elements in a block of 32 columns. `row` is in the tile; `turn` goes on with the
// columns, and a stage is free again after the last of its rows' `is_last`. A rehearsal (hopper_gemm.cu) is not `is_real`.
__device__ __forceinline__ void read_residual(
    const unsigned char* ring, shared_t full, shared_t empty, Turn<STAGES>& turn, Held& held, int row, bool is_real, bool is_last,
    int block, int h
) {
    const int lane = (int)threadIdx.x % 32, column = block * 32 % CHANNELS_HELD;
    if (is_real && h == 0 && column == 0) await_phase(full + 8 * turn.stage, turn.parity);
    #pragma unroll
    for (int i = 0; i < 8 / WIDTH; ++i) {
        const int first = i * WIDTH, place = first / NEIGHBOURS * (4 * NEIGHBOURS) + first % NEIGHBOURS;
        read_panel(ring, turn.stage, row, column + lane % 4 * NEIGHBOURS + place, is_real, held.kept[i].residual);
    }
    if (h == 1 && ((block + 1) * 32 % CHANNELS_HELD == 0 || block + 1 == BN / 32)) {
        end_reads();
        __syncwarp();
        if (is_real && is_last && lane == 0) arrive(empty + 8 * turn.stage);
        turn.advance();
    }
}

// The same where rows are channels: `channel` and `pixel` are in the tile.
__device__ __forceinline__ void read_pair(
    const unsigned char* ring, const Turn<STAGES>& turn, Held& held, bool is_real, int channel, int pixel
) {
    #pragma unroll
    for (int i = 0; i < CALLS_OF_PAIR; ++i) {
        const int here = channel + i, stage = turn.stage + here / CHANNELS_HELD;
        read_panel(ring, stage < STAGES ? stage : stage - STAGES, pixel, here % CHANNELS_HELD, is_real, held.kept[i].residual);
    }
}

// All stages of a tile's: waited for by all threads, and freed.
__device__ __forceinline__ void await_residual(shared_t full, Turn<STAGES> turn) {
    #pragma unroll
    for (int i = 0; i < STAGES_TAKEN; ++i, turn.advance()) await_phase(full + 8 * turn.stage, turn.parity);
}
__device__ __forceinline__ void free_residual(shared_t empty, Turn<STAGES>& turn) {
    end_reads();
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < STAGES_TAKEN; ++i, turn.advance())
        if (threadIdx.x % 32 == 0) arrive(empty + 8 * turn.stage);
}
