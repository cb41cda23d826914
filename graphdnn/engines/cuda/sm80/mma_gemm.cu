// Convolution as a matrix product on tensor cores (mma.sync), for all three directions: C[row, column] = sum over k of
// A[row, k] * B[k, column], one product per group and residue. See implicit_coordinates.cuh for what indices stand for.
//
// Tiles of both operands arrive STAGES - 1 ahead of the products. One barrier for each tile: before it a warp has loaded
// all it needs of this tile, behind it the next one is there for everybody. Where blocks stay (STAYS), a block computes
// every gridDim.x-th tile of the results, and operands of the next one arrive while results of this one leave.

constexpr int A_KIND = A_IS_PLAIN ? CHANNEL : PIXEL;
constexpr int B_KIND = A_IS_PLAIN ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;

// A tile of the results.
struct Place {
    long long row0, column0;
    int group;
};

__device__ __forceinline__ Place place_of(long long index, long long tiles_m, long long tiles_n) {
    Place found;
    if (ARE_SHORT) {  // tiles as well
        const unsigned int each = (unsigned int)(tiles_m * tiles_n), tile = (unsigned int)index % each;
        found.group = (int)((unsigned int)index / each);
        // Blocks of one group walk down the columns of tiles first, so that neighbours share rows in the cache.
        found.row0 = (long long)(tile / (unsigned int)tiles_n) * BM;
        found.column0 = (long long)(tile % (unsigned int)tiles_n) * BN;
    } else {
        const long long each = tiles_m * tiles_n, tile = index % each;
        found.group = (int)(index / each);
        found.row0 = tile / tiles_n * BM;
        found.column0 = tile % tiles_n * BN;
    }
    return found;
}

__device__ __forceinline__ void prepare(const Params& p, Tables& tables, const Place& place) {
    constexpr int KIND = A_IS_PLAIN ? B_KIND : A_KIND;  // of the gathered operand's outer index
    for (int i = threadIdx.x; i < (A_IS_PLAIN ? BN : BM); i += THREADS) {
        Outer found;
        found.offset = gathered_part<KIND>(digits_of<KIND>((A_IS_PLAIN ? place.column0 : place.row0) + i, p), p, found.u);
        tables.gathered[i] = found;
    }
}

__device__ __forceinline__ void prepare_results(const Params& p, Tables& tables, const Place& place) {
    for (int i = threadIdx.x; i < BM; i += THREADS) tables.row[i] = output_digits<A_KIND>(place.row0 + i, p);
    for (int i = threadIdx.x; i < BN; i += THREADS) tables.column[i] = output_digits<B_KIND>(place.column0 + i, p);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mma_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Tables tables[STAYS ? 2 : 1];
    __shared__ Described described;

    const long long rows = p.rows[residue()], columns = p.columns[residue()];
    const long long tiles_m = (rows + BM - 1) / BM, tiles_n = (columns + BN - 1) / BN, places = p.groups * tiles_m * tiles_n;
    long long index = blockIdx.x;
    if (RESIDUES > 1 && index >= places) return;
    const long long depth = p.depth[residue()], share = p.depth_per_block[residue()];
    const long long first = (long long)blockIdx.y * share, last = first + share < depth ? first + share : depth;
    const int tiles = last > first ? (int)((last - first + BK - 1) / BK) : 0;

    Place here = place_of(index, tiles_m, tiles_n);
    prepare(p, tables[0], here);
    describe<2>(p, described, 0, first, tiles);
    __syncthreads();

    typename SideA::Held held_a;
    typename SideB::Held held_b;
    typename SideA::Waiting waiting_a;
    typename SideB::Waiting waiting_b;
    const auto hold_tile = [&](const Place& at, int buffer) {
        const StoredGathered* gathered = (const StoredGathered*)p.gathered + at.group * p.gathered_g;
        const StoredPlain* plain = (const StoredPlain*)p.plain + at.group * p.plain_g + p.plain_start[residue()];
        const void *of_a = gathered, *of_b = plain;
        if (A_IS_PLAIN) of_a = plain, of_b = gathered;
        hold<SideA>(p, held_a, (const StoredA*)of_a, tables[buffer], at.row0, (int)(rows - at.row0 < BM ? rows - at.row0 : BM));
        hold<SideB>(
            p, held_b, (const StoredB*)of_b, tables[buffer], at.column0,
            (int)(columns - at.column0 < BN ? columns - at.column0 : BN)
        );
    };
    hold_tile(here, 0);
    int k_left = last > first ? (int)(last - first) : 0;  // from the start of the tile that is fetched next
    int fetched = 0, fetching = 0;                        // tiles; the buffer of what is fetched
    constexpr int PARTS = STEPS - 1;  // a tile is fetched between the products of all steps but the last
    const auto fetch_tile = [&](int slot, int part) {
        unsigned char* const stage = memory + slot * STAGE_BYTES;
        const Depth* const indices = described.at + fetched % (2 * BATCH) * ENTRIES;
        fetch<SideA, PARTS>(p, held_a, tables[fetching], indices, k_left, part, stage, waiting_a);
        fetch<SideB, PARTS>(p, held_b, tables[fetching], indices, k_left, part, stage + TileA::BYTES, waiting_b);
        if (part == PARTS - 1) commit_copies();
    };
    const auto put_tile = [&](int slot) {
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
    prepare_results(p, tables[0], here);

    Accum sum[TILES_M][TILES_N][4];
    const int warp = (int)threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WM, warp_column = warp % WARPS_N * WN;
    const ReaderA reader_a = ReaderA::of(warp_row);
    const ReaderB reader_b = ReaderB::of(warp_column);
    Fragments fragments[2];
    await_copies<STAGES - 2>();
    __syncthreads();
    load_fragments(fragments[0], memory, 0, 0, reader_a, reader_b);
    int reading = 0, writing = STAGES - 1, buffer = 0;

    #pragma unroll 1
    while (true) {
        Place next = here;
        const bool is_last = !STAYS || index + gridDim.x >= places;
        if (!is_last) {
            next = place_of(index + gridDim.x, tiles_m, tiles_n);
            prepare(p, tables[buffer ^ 1], next);
            prepare_results(p, tables[buffer ^ 1], next);
        }
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i)
            #pragma unroll
            for (int j = 0; j < TILES_N; ++j)
                #pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j][e] = (Accum)0;

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
                    if (fetched % BATCH == 0) describe<1>(p, described, fetched / BATCH + 1, first, tiles);
                    if (!is_last && k_left <= 0) {  // from here on the next place's operands
                        fetching = buffer ^ 1;
                        hold_tile(next, fetching);
                        k_left = (int)(last - first);
                    }
                }
                load_fragments(fragments[(step + 1) % 2], memory, reading * STAGE_BYTES, (step + 1) % STEPS, reader_a, reader_b);
                if (step < PARTS) fetch_tile(writing, step);
                multiply(sum, fragments[step % 2]);
            }
        }
        if (!STAYS) {  // the stages' memory is used again
            await_copies<0>();
            __syncthreads();
        }

        struct Standing {
            int at[6];
            ColumnOperands kept;  // of operands along the columns
        };
        const auto stand = [&](int column, bool inside) {
            Standing found;
            #pragma unroll
            for (int d = 0; d < 6; ++d) found.at[d] = 0;
            found.at[K_KIND == PIXEL ? 0 : 1] = here.group;
            output_coordinates<B_KIND>(p, tables[buffer].column[column], found.at);
            if (inside && !SPLIT) load_column_operands(p, found.at, found.kept);
            return found;
        };
        const auto emit = [&](int row, int column, const Standing& standing, const Accum (&acc)[WIDTH]) {
            if constexpr (SPLIT) {  // partial sums, added in order by a kernel of their own
                const long long at = p.partial_start[residue()] + blockIdx.y * p.results[residue()] +
                                     (here.group * rows + here.row0 + row) * columns + here.column0 + column;
                Vec<Accum, WIDTH> pack;
                #pragma unroll
                for (int e = 0; e < WIDTH; ++e) pack[e] = acc[e];
                store_vec<WIDTH>(p.partial + at, pack);
            } else {
                int at[6];
                #pragma unroll
                for (int d = 0; d < 6; ++d) at[d] = standing.at[d];
                output_coordinates<A_KIND>(p, tables[buffer].row[row], at);
                epilogue(p, at, standing.kept, acc);
            }
        };
        Accum* const slab = (Accum*)(memory + (STAYS ? STAGES * STAGE_BYTES : 0) + warp * SLAB_BYTES);
        const int rows_left = (int)(rows - here.row0 < BM ? rows - here.row0 : BM);
        const int columns_left = (int)(columns - here.column0 < BN ? columns - here.column0 : BN);
        if (rows_left == BM && columns_left == BN)
            leave<true>(slab, sum, warp_row, warp_column, rows_left, columns_left, stand, emit);
        else
            leave<false>(slab, sum, warp_row, warp_column, rows_left, columns_left, stand, emit);
        if (is_last) break;
        __syncthreads();  // nobody looks at this place's tables any more
        here = next;
        index += gridDim.x;
        buffer ^= 1;
    }
    await_copies<0>();
}
