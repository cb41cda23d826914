// Adds the parts of a split product in a fixed order and runs the epilogue.
//
// A unit is ROWS_OF_UNIT of the 8 rows x 32 columns that are one of the two rows of each thread of a warp. SLICES warps add some
// of its parts each, those that follow each other, UNDER_WAY at a time; lanes that a unit of fewer rows leaves over have parts of
// their own. Then the first warp adds the slices. A block has UNITS of them.
//
// OVERLAPS: blocks are there while those of the products still run, beside them, and those of the next launch beside these.

constexpr int UNIT_THREADS = 32 * SLICES, LANES = 4 * ROWS_OF_UNIT, BESIDE = 32 / LANES;

extern "C" __global__ void __launch_bounds__(UNIT_THREADS * UNITS, OVERLAPS ? 3 : 1) split_k_reduce(const __grid_constant__ Params p) {
    __shared__ Vec<Accum, 4> kept[UNITS][SLICES][2][32];
    if (OVERLAPS) pdl_trigger();
    const int here = (int)threadIdx.x / UNIT_THREADS, slice = (int)threadIdx.x / 32 % SLICES, lane = (int)threadIdx.x % 32;
    int set = (int)blockIdx.x * UNITS + here;
    const int of_set = divmod_inplace(set, BESIDE) * LANES + lane % LANES, piece = set / 8, warp = set / 2 % 4, h = set % 2;
    const int splits = (int)p.splits, share = slice * BESIDE + lane / LANES;
    const int first = share * splits / (SLICES * BESIDE), last = (share + 1) * splits / (SLICES * BESIDE);
    const Accum* from = p.partial + partial_offset(p, first, piece) + (h * 256 + warp * 32 + of_set) * 4;
    const long long pitch = partial_offset(p, 1, 0);
    pdl_wait();
    Vec<Accum, 4> sum[2]{};
    #pragma unroll 1
    for (int part = first; part < last; part += UNDER_WAY, from += UNDER_WAY * pitch) {
        Vec<Accum, 4> packs[UNDER_WAY][2];
        #pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                packs[i][half] = part + i < last ? load_vec<4>(from + i * pitch + half * 512) : Vec<Accum, 4>{};
        #pragma unroll
        for (int i = 0; i < UNDER_WAY; ++i)
            #pragma unroll
            for (int e = 0; e < 8; ++e) sum[e / 4].data[e % 4] = wrapping_sum(sum[e / 4].data[e % 4], packs[i][e / 4].data[e % 4]);
    }
    #pragma unroll
    for (int by = LANES; by < 32; by *= 2)
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            Accum& one = sum[e / 4].data[e % 4];
            one = wrapping_sum(one, __shfl_xor_sync(0xffffffffu, one, by));
        }
    if constexpr (SLICES > 1) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) kept[here][slice][half][lane] = sum[half];
        __syncthreads();
        if (slice > 0) return;
    }
    Accum v[8];
    #pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = sum[e / 4].data[e % 4];
    #pragma unroll
    for (int other = 1; other < SLICES; ++other)
        #pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = wrapping_sum(v[e], kept[here][other][e / 4][lane].data[e % 4]);
    const PartialTile of = partial_tile_at(p, piece);
    RowCoords rows = row_coords_at(p, of.w, of.row + warp * 16 + of_set / 4 + 8 * h);
    rows.is_inside[0] &= lane < LANES;
    const FragmentSlice at = fragment_slice(p, of.w, rows, of.block, 0);
    EpilogueOperands held;
    #pragma unroll
    for (int i = 0; i < 8 / VEC_WIDTH; ++i) load_column_operands(p, at.at[i], held.kept[i]);
    store_fragment(p, at, held, v);
}
