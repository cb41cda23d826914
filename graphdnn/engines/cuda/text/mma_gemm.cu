// Convolution as a matrix product on tensor cores (mma.sync), for all three directions: C[row, column] = sum over k of
// A[row, k] * B[k, column], one product per group and residue. See implicit_coordinates.cuh for what indices stand for.
//
// Tiles of both operands arrive STAGES - 1 ahead of the products. One barrier for each tile: before it a warp has loaded
// all it needs of this tile, behind it the next one is there for everybody.

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mma_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Tables tables;

    // Blocks of one group walk down the columns of tiles first, so that neighbours share rows in the cache.
    const long long rows = p.rows[residue()], columns = p.columns[residue()];
    const long long tiles_m = (rows + BM - 1) / BM, tiles_n = (columns + BN - 1) / BN;
    const long long block = blockIdx.x;
    if (RESIDUES > 1 && block >= p.groups * tiles_m * tiles_n) return;
    const int group = (int)(block / (tiles_m * tiles_n));
    const long long tile = block - group * (tiles_m * tiles_n);
    const long long row0 = tile / tiles_n * BM, column0 = tile % tiles_n * BN;
    const long long depth = p.depth[residue()], share = p.depth_per_block[residue()];
    const long long first = (long long)blockIdx.y * share, last = first + share < depth ? first + share : depth;
    const int rows_left = (int)(rows - row0 < BM ? rows - row0 : BM);
    const int columns_left = (int)(columns - column0 < BN ? columns - column0 : BN);

    constexpr int A_KIND = A_IS_PLAIN ? CHANNEL : PIXEL;
    constexpr int B_KIND = A_IS_PLAIN ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;
    constexpr int OUTER_KIND = A_IS_PLAIN ? B_KIND : A_KIND;  // of the gathered operand
    for (int i = threadIdx.x; i < (A_IS_PLAIN ? BN : BM); i += THREADS) {
        Outer found;
        found.offset = gathered_part<OUTER_KIND>(digits_of<OUTER_KIND>((A_IS_PLAIN ? column0 : row0) + i, p), p, found.u);
        tables.gathered[i] = found;
    }
    describe<2>(p, tables, 0, first);
    __syncthreads();

    typename SideA::Held held_a;
    typename SideB::Held held_b;
    typename SideA::Waiting waiting_a;
    typename SideB::Waiting waiting_b;
    {
        const StoredGathered* gathered = (const StoredGathered*)p.gathered + group * p.gathered_g;
        const StoredPlain* plain = (const StoredPlain*)p.plain + group * p.plain_g + p.plain_start[residue()];
        hold<SideA>(p, held_a, (const StoredA*)(A_IS_PLAIN ? (const void*)plain : (const void*)gathered), tables, row0, rows_left);
        hold<SideB>(p, held_b, (const StoredB*)(A_IS_PLAIN ? (const void*)gathered : (const void*)plain), tables, column0, columns_left);
    }
    const int tiles = last > first ? (int)((last - first + BK - 1) / BK) : 0;
    int k_left = last > first ? (int)(last - first) : 0;  // from the start of the tile that is fetched next
    int fetched = 0;
    constexpr int PARTS = STEPS - 1;  // a tile is fetched between the products of all steps but the last
    auto fetch_tile = [&](int slot, int part) {
        unsigned char* const stage = memory + slot * STAGE_BYTES;
        const Depth* const described = tables.depth + fetched % (2 * BATCH) * ENTRIES;
        fetch<SideA, PARTS>(p, held_a, tables, described, k_left, part, stage, waiting_a);
        fetch<SideB, PARTS>(p, held_b, tables, described, k_left, part, stage + TileA::BYTES, waiting_b);
        if (part == PARTS - 1) commit_copies();
    };
    auto put_tile = [&](int slot) {
        put<SideA>(memory + slot * STAGE_BYTES, waiting_a);
        put<SideB>(memory + slot * STAGE_BYTES + TileA::BYTES, waiting_b);
        k_left -= BK;
        ++fetched;
    };

    #pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        #pragma unroll
        for (int part = 0; part < PARTS; ++part) fetch_tile(stage, part);
        put_tile(stage);
    }
    for (int i = threadIdx.x; i < BM; i += THREADS) tables.row[i] = output_digits<A_KIND>(row0 + i, p);
    for (int i = threadIdx.x; i < BN; i += THREADS) tables.column[i] = output_digits<B_KIND>(column0 + i, p);

    Accumulator sum[TILES_M][TILES_N][4];
    #pragma unroll
    for (int i = 0; i < TILES_M; ++i)
        #pragma unroll
        for (int j = 0; j < TILES_N; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][j][e] = (Accumulator)0;

    const int warp = (int)threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WM, warp_column = warp % WARPS_N * WN;
    const ReaderA reader_a = ReaderA::of(warp_row);
    const ReaderB reader_b = ReaderB::of(warp_column);
    Fragments fragments[2];
    await_copies<STAGES - 2>();
    __syncthreads();
    load_fragments(fragments[0], memory, 0, 0, reader_a, reader_b);
    int reading = 0, writing = STAGES - 1;
    #pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                put_tile(writing);
                await_copies<STAGES - 2>();
                __syncthreads();
                writing = reading;
                reading = reading + 1 < STAGES ? reading + 1 : 0;
                if (fetched % BATCH == 0) describe<1>(p, tables, fetched / BATCH + 1, first);
            }
            load_fragments(fragments[(step + 1) % 2], memory, reading * STAGE_BYTES, (step + 1) % STEPS, reader_a, reader_b);
            if (step < PARTS) fetch_tile(writing, step);
            multiply(sum, fragments[step % 2]);
        }
    }
    await_copies<0>();
    __syncthreads();

    struct Standing {
        int at[6];
        Kept kept;  // of operands along the columns
    };
    const auto stand = [&](int column, bool inside) {
        Standing found;
        #pragma unroll
        for (int d = 0; d < 6; ++d) found.at[d] = 0;
        found.at[K_KIND == PIXEL ? 0 : 1] = group;
        output_coordinates<B_KIND>(p, tables.column[column], found.at);
        if (inside && !SPLIT) keep(p, found.at, found.kept);
        return found;
    };
    const auto emit = [&](int row, int column, const Standing& standing, const Accumulator (&acc)[WIDTH]) {
        if constexpr (SPLIT) {  // partial sums, added in order by a kernel of their own
            const long long at = p.partial_start[residue()] + blockIdx.y * p.results[residue()] +
                                 (group * rows + row0 + row) * columns + column0 + column;
            Pack<Accumulator, WIDTH> pack;
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) pack[e] = acc[e];
            store_pack<WIDTH>(p.partial + at, pack);
        } else {
            int at[6];
            #pragma unroll
            for (int d = 0; d < 6; ++d) at[d] = standing.at[d];
            output_coordinates<A_KIND>(p, tables.row[row], at);
            epilogue(p, at, standing.kept, acc);
        }
    };
    Accumulator* const slab = (Accumulator*)(memory + warp * SLAB_BYTES);
    if (rows_left == BM && columns_left == BN)
        leave<true>(slab, sum, warp_row, warp_column, rows_left, columns_left, stand, emit);
    else
        leave<false>(slab, sum, warp_row, warp_column, rows_left, columns_left, stand, emit);
}
