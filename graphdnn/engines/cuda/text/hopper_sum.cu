// Adds the parts of a split product in their order and runs the epilogue.
//
// A unit is one of the two rows of each thread of a warp, 8 rows x 32 columns: two packs for each lane. SLICES times two
// warps add some of the parts each, those that follow each other, one warp for each half of the columns; then the first
// warp adds the slices. A block has UNITS of them.

constexpr int UNIT_THREADS = 64 * SLICES, UNDER_WAY = sizeof(Accumulator) > 4 ? 4 : 8;

extern "C" __global__ void __launch_bounds__(UNIT_THREADS * UNITS, 1) hopper_sum(const __grid_constant__ Params p) {
    let_next_start();
    __shared__ Pack<Accumulator, 4> kept[UNITS][SLICES][2][32];
    const int here = (int)threadIdx.x / UNIT_THREADS, lane = (int)threadIdx.x % 32, half = (int)threadIdx.x / 32 % 2;
    const int slice = (int)threadIdx.x % UNIT_THREADS / 64, parts = (int)p.parts;
    const int unit = (int)blockIdx.x * UNITS + here, piece = unit / 8, warp = unit / 2 % 4, h = unit % 2;
    int rest = piece;
    const int block = take(rest, BN / 32), j = take(rest, MI), consumer = take(rest, CONSUMERS);
    const int first = slice * parts / SLICES, last = (slice + 1) * parts / SLICES;
    const Accumulator* from = p.partial + partial_at(p, first, piece) + ((2 * h + half) * 128 + warp * 32 + lane) * 4;
    const long long pitch = partial_at(p, 1, 0);
    wait_for_launch_before();
    Pack<Accumulator, 4> sum{};
    #pragma unroll 1
    for (int part = first; part < last; part += UNDER_WAY, from += UNDER_WAY * pitch) {
        Pack<Accumulator, 4> packs[UNDER_WAY];  // all of them under way before the first is added
        #pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i)
            packs[i] = part + i < last ? load_pack<4>(from + i * pitch) : Pack<Accumulator, 4>{};
        #pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum.at[e] = wrapping_sum(sum.at[e], packs[i].at[e]);
    }
    kept[here][slice][half][lane] = sum;
    __syncthreads();
    if (slice > 0 || half > 0) return;
    Accumulator v[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = kept[here][0][i / 4][lane].at[i % 4];
    #pragma unroll
    for (int other = 1; other < SLICES; ++other)
        #pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = wrapping_sum(v[i], kept[here][other][i / 4][lane].at[i % 4]);
    const Work w = work_of(p, rest);
    const Rows rows = rows_from(p, w, (consumer * MI + j) * 64 + warp * 16 + lane / 4 + 8 * h);
    const Piece at = piece_of(p, w, rows, block, 0);
    Held held;
    #pragma unroll
    for (int i = 0; i < 8 / WIDTH; ++i) keep(p, at.at[i], held.kept[i]);
    leave(p, at, held, v);
}
