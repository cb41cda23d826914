// An operand as large as the result that the epilogue reads: the copy unit brings a tile's part of it through the ring, after
// the last step of the tile's products, so that nobody waits for memory when sums leave.
//
// A panel is BM rows of 128 bytes; a stage has room for one in its part of a, and for more in its part of b.

constexpr int SPEAKERS = 4;  // of a warpgroup, that free a stage: each warp has read for itself
constexpr int PANEL_COLUMNS = ROW / (int)sizeof(Residual), PANELS = (BN + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
constexpr int PANEL_ROOM = 1 + BN / BM, PANELS_HELD = PANEL_ROOM < PANELS ? PANEL_ROOM : PANELS;
constexpr int COLUMNS_HELD = PANELS_HELD * PANEL_COLUMNS;  // by a stage
static_assert(MI == 1 || (PANELS + PANELS_HELD - 1) / PANELS_HELD <= STAGES, "all of them at once, where rows come in turns");

__device__ __forceinline__ void fetch_residual_map(const Params& p) { fetch_map(p.residual[0]); }

template <class Slot> __device__ __forceinline__ void copy_residual(const Params& p, const Work& w, Slot slot) {
    #pragma unroll 1
    for (int first = 0; first < PANELS; first += PANELS_HELD) {
        const int count = PANELS - first < PANELS_HELD ? PANELS - first : PANELS_HELD;
        shared_t a, b, barrier;
        slot(a, b, barrier, count * BM * ROW);
        #pragma unroll 1
        for (int i = 0; i < count; ++i)
            copy_box(
                i == 0 ? a : b + (i - 1) * BM * ROW, p.residual[0], barrier, w.tile_n * BN + (first + i) * PANEL_COLUMNS, 0,
                w.tile_m * BM
            );
    }
}

// What the epilogue keeps, with a thread's elements in a block of 32 columns. `row` is in the tile; `turn` goes on with the
// columns, and a stage is free again after the last of its rows' `is_last`. A rehearsal (hopper_gemm.cu) is not `is_real`.
__device__ __forceinline__ void read_residual(
    const unsigned char* ring, shared_t full, shared_t empty, Turn<STAGES>& turn, Held& held, int row, bool is_real, bool is_last,
    int block, int h
) {
    const int lane = (int)threadIdx.x % 32, column = block * 32 % COLUMNS_HELD, panel = column / PANEL_COLUMNS;
    if (is_real && h == 0 && column == 0) await_phase(full + 8 * turn.stage, turn.parity);
    const int at = panel == 0 ? turn.stage * BM : STAGES * BM + turn.stage * BN + (panel - 1) * BM;
    #pragma unroll
    for (int i = 0; i < 8 / WIDTH; ++i) {
        const int first = i * WIDTH;
        const int here = column % PANEL_COLUMNS + lane % 4 * NEIGHBOURS + first / NEIGHBOURS * (4 * NEIGHBOURS) + first % NEIGHBOURS;
        const int byte = here * (int)sizeof(Residual);
        const unsigned char* const from = ring + (at + row) * ROW + (byte / 16 ^ row % 8) * 16 + byte % 16;
        Pack<Residual, WIDTH> pack{};
        if (is_real) pack = *(const Pack<Residual, WIDTH>*)from;
        #pragma unroll
        for (int e = 0; e < WIDTH; ++e) held.kept[i].residual[e] = pack.at[e];
    }
    if (h == 1 && ((block + 1) * 32 % COLUMNS_HELD == 0 || block + 1 == BN / 32)) {
        __syncwarp();
        if (is_real && is_last && lane == 0) arrive(empty + 8 * turn.stage);
        turn.advance();
    }
}
