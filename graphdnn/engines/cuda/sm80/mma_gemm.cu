// Implicit GEMM on the tensor cores of a warp (mma.sync), for fprop, dgrad and wgrad:
//   C[row, column] = sum over k of A[row, k] * B[k, column], one GEMM for each group and each residue of a strided dgrad.
// implicit_coordinates.cuh says which coordinates an index stands for.
//
// Tile:       TILE_M x TILE_N of C for a CTA, WARP_M x WARP_N for a warp; a K tile has TILE_K elements.
// Pipeline:   STAGES stages of cp.async. Loads run STAGES - 1 K tiles ahead of the products, and one __syncthreads for each
//             K tile both completes the next stage and releases the previous one.
// Warp roles: all warps copy and multiply. One K tile is copied in LOAD_SLICES slices between the mma steps.
// Epilogue:   each warp stores through its own shared memory (mma_epilogue.cuh), or stores partial sums where SPLIT.
// PERSISTENT: a CTA computes every gridDim.x-th tile of C; loads for the next tile overlap the epilogue of the current one.
//
// Required constants (from the generator):
//   TILE_M, TILE_N, TILE_K, WARP_M, WARP_N: tile extents in elements      STAGES: at least 2      BATCH: K tiles indexed at once
//   THREADS, CTAS_PER_SM: launch bounds                                  VEC_A, VEC_B: elements of one global access
//   A_IS_DENSE: A is the dense operand and B the im2col operand           A_K_MAJOR, B_K_MAJOR: layout in global memory
//   A_MN_MAJOR, B_MN_MAJOR: layout in shared memory                       CHECKED: some taps reach outside the image
//   K_KIND: PIXEL for wgrad, else FILTER                                  RESIDUES: GEMMs of the launch, in the grid's z
//   SPLIT: split-K in the grid's y    PERSISTENT    ARE_SHORT: every index is a 32-bit number    SPATIAL: 1 to 3

#include "direct_copy.cuh"
#include "implicit_coordinates.cuh"
#include "mma_tile.cuh"
#include "mma_operands.cuh"
#include "mma_epilogue.cuh"

constexpr int A_KIND = A_IS_DENSE ? CHANNEL : PIXEL;
constexpr int B_KIND = A_IS_DENSE ? (K_KIND == PIXEL ? FILTER : PIXEL) : CHANNEL;

// The tile of C that a CTA computes.
struct WorkTile {
    long long row0, column0;
    int group;
};

__device__ __forceinline__ WorkTile decode_work_tile(long long work_item, long long tiles_m, long long tiles_n) {
    WorkTile result;
    if (ARE_SHORT) {  // tile numbers are 32-bit numbers as well
        const unsigned int each = (unsigned int)(tiles_m * tiles_n), tile = (unsigned int)work_item % each;
        result.group = (int)((unsigned int)work_item / each);
        // Consecutive CTAs compute tiles of the same rows, so that they share these rows in the L2 cache.
        result.row0 = (long long)(tile / (unsigned int)tiles_n) * TILE_M;
        result.column0 = (long long)(tile % (unsigned int)tiles_n) * TILE_N;
    } else {
        const long long each = tiles_m * tiles_n, tile = work_item % each;
        result.group = (int)(work_item / each);
        result.row0 = tile / tiles_n * TILE_M;
        result.column0 = tile % tiles_n * TILE_N;
    }
    return result;
}

__device__ __forceinline__ void fill_im2col_offsets(const Params& p, IndexTables& tables, const WorkTile& place) {
    constexpr int KIND = A_IS_DENSE ? B_KIND : A_KIND;  // kind of the im2col operand's outer index
    for (int i = threadIdx.x; i < (A_IS_DENSE ? TILE_N : TILE_M); i += THREADS) {
        OuterIndex result;
        result.offset = im2col_offset<KIND>(digits_of<KIND>((A_IS_DENSE ? place.column0 : place.row0) + i, p), p, result.u);
        tables.im2col[i] = result;
    }
}

__device__ __forceinline__ void fill_output_digits(const Params& p, IndexTables& tables, const WorkTile& place) {
    for (int i = threadIdx.x; i < TILE_M; i += THREADS) tables.row[i] = output_digits<A_KIND>(place.row0 + i, p);
    for (int i = threadIdx.x; i < TILE_N; i += THREADS) tables.column[i] = output_digits<B_KIND>(place.column0 + i, p);
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) mma_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ IndexTables tables[PERSISTENT ? 2 : 1];
    __shared__ KIndexTable k_indices;

    const long long rows = p.rows[residue()], columns = p.columns[residue()];
    const long long tiles_m = (rows + TILE_M - 1) / TILE_M, tiles_n = (columns + TILE_N - 1) / TILE_N, work_tiles = p.groups * tiles_m * tiles_n;
    long long work_item = blockIdx.x;
    if (RESIDUES > 1 && work_item >= work_tiles) return;
    const long long depth = p.depth[residue()], split_depth = p.depth_per_cta[residue()];
    const long long first = (long long)blockIdx.y * split_depth, last = first + split_depth < depth ? first + split_depth : depth;
    const int tiles = last > first ? (int)((last - first + TILE_K - 1) / TILE_K) : 0;

    WorkTile cur_tile = decode_work_tile(work_item, tiles_m, tiles_n);
    fill_im2col_offsets(p, tables[0], cur_tile);
    fill_k_indices<2>(p, k_indices, 0, first, tiles);
    __syncthreads();

    typename SideA::CopyIterator copy_a;
    typename SideB::CopyIterator copy_b;
    typename SideA::StagedRegisters staged_a;
    typename SideB::StagedRegisters staged_b;
    const auto init_copies = [&](const WorkTile& at, int buffer) {
        const Im2colElement* im2col = (const Im2colElement*)p.im2col + at.group * p.im2col_g;
        const DenseElement* dense = (const DenseElement*)p.dense + at.group * p.dense_g + p.dense_start[residue()];
        const void *of_a = im2col, *of_b = dense;
        if (A_IS_DENSE) of_a = dense, of_b = im2col;
        init_copy<SideA>(p, copy_a, (const StoredA*)of_a, tables[buffer], at.row0, (int)(rows - at.row0 < TILE_M ? rows - at.row0 : TILE_M));
        init_copy<SideB>(
            p, copy_b, (const StoredB*)of_b, tables[buffer], at.column0,
            (int)(columns - at.column0 < TILE_N ? columns - at.column0 : TILE_N)
        );
    };
    init_copies(cur_tile, 0);
    int k_left = last > first ? (int)(last - first) : 0;  // k indices from the start of the K tile that is loaded next
    int tiles_loaded = 0, load_buffer = 0;                        // K tiles loaded so far; the index tables of the loads
    constexpr int LOAD_SLICES = MMA_STEPS - 1;  // one slice of a K tile is loaded in each mma step but the last
    const auto load_tile = [&](int slot, int load_slice) {
        unsigned char* const stage = memory + slot * STAGE_BYTES;
        const KIndex* const indices = k_indices.at + tiles_loaded % (2 * BATCH) * TILE_ENTRIES;
        load_global<SideA, LOAD_SLICES>(p, copy_a, tables[load_buffer], indices, k_left, load_slice, stage, staged_a);
        load_global<SideB, LOAD_SLICES>(p, copy_b, tables[load_buffer], indices, k_left, load_slice, stage + TileA::BYTES, staged_b);
        if (load_slice == LOAD_SLICES - 1) cp_async_commit();
    };
    const auto store_tile = [&](int slot) {
        store_shared<SideA>(memory + slot * STAGE_BYTES, staged_a);
        store_shared<SideB>(memory + slot * STAGE_BYTES + TileA::BYTES, staged_b);
        k_left -= TILE_K;
        ++tiles_loaded;
    };

    #pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        #pragma unroll
        for (int load_slice = 0; load_slice < LOAD_SLICES; ++load_slice) load_tile(stage, load_slice);
        store_tile(stage);
    }
    fill_output_digits(p, tables[0], cur_tile);

    Accum accum[MMA_TILES_M][MMA_TILES_N][4];
    const int warp = (int)threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WARP_M, warp_column = warp % WARPS_N * WARP_N;
    const ReaderA reader_a = ReaderA::of(warp_row);
    const ReaderB reader_b = ReaderB::of(warp_column);
    Fragments fragments[2];
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    load_fragments(fragments[0], memory, 0, 0, reader_a, reader_b);
    int read_stage = 0, write_stage = STAGES - 1, buffer = 0;

    #pragma unroll 1
    while (true) {
        WorkTile next = cur_tile;
        const bool is_last = !PERSISTENT || work_item + gridDim.x >= work_tiles;
        if (!is_last) {
            next = decode_work_tile(work_item + gridDim.x, tiles_m, tiles_n);
            fill_im2col_offsets(p, tables[buffer ^ 1], next);
            fill_output_digits(p, tables[buffer ^ 1], next);
        }
        #pragma unroll
        for (int i = 0; i < MMA_TILES_M; ++i)
            #pragma unroll
            for (int j = 0; j < MMA_TILES_N; ++j)
                #pragma unroll
                for (int e = 0; e < 4; ++e) accum[i][j][e] = (Accum)0;

        #pragma unroll 1
        for (int t = 0; t < tiles; ++t) {
            #pragma unroll
            for (int step = 0; step < MMA_STEPS; ++step) {
                if (step == MMA_STEPS - 1) {
                    store_tile(write_stage);
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    write_stage = read_stage;
                    read_stage = read_stage + 1 < STAGES ? read_stage + 1 : 0;
                    if (tiles_loaded % BATCH == 0) fill_k_indices<1>(p, k_indices, tiles_loaded / BATCH + 1, first, tiles);
                    if (!is_last && k_left <= 0) {  // loads continue with the operands of the next tile of C
                        load_buffer = buffer ^ 1;
                        init_copies(next, load_buffer);
                        k_left = (int)(last - first);
                    }
                }
                load_fragments(fragments[(step + 1) % 2], memory, read_stage * STAGE_BYTES, (step + 1) % MMA_STEPS, reader_a, reader_b);
                if (step < LOAD_SLICES) load_tile(write_stage, step);
                mma_warp_tile(accum, fragments[step % 2]);
            }
        }
        if (!PERSISTENT) {  // the epilogue uses the memory of the stages
            cp_async_wait<0>();
            __syncthreads();
        }

        struct ColumnState {
            int at[6];
            ColumnOperands column_operands;  // bias and scale, loaded once for the columns of a lane
        };
        const auto load_columns = [&](int column, bool inside) {
            ColumnState result;
            #pragma unroll
            for (int d = 0; d < 6; ++d) result.at[d] = 0;
            result.at[K_KIND == PIXEL ? 0 : 1] = cur_tile.group;
            output_coordinates<B_KIND>(p, tables[buffer].column[column], result.at);
            if (inside && !SPLIT) load_column_operands(p, result.at, result.column_operands);
            return result;
        };
        const auto emit = [&](int row, int column, const ColumnState& column_state, const Accum (&acc)[VEC_WIDTH]) {
            if constexpr (SPLIT) {  // reduce_splits adds the partial sums in order
                const long long at = p.partial_start[residue()] + blockIdx.y * p.results[residue()] +
                                     (cur_tile.group * rows + cur_tile.row0 + row) * columns + cur_tile.column0 + column;
                Vec<Accum, VEC_WIDTH> pack;
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) pack[e] = acc[e];
                store_vec<VEC_WIDTH>(p.partial + at, pack);
            } else {
                int at[6];
                #pragma unroll
                for (int d = 0; d < 6; ++d) at[d] = column_state.at[d];
                output_coordinates<A_KIND>(p, tables[buffer].row[row], at);
                epilogue(p, at, column_state.column_operands, acc);
            }
        };
        Accum* const epilogue_smem = (Accum*)(memory + (PERSISTENT ? STAGES * STAGE_BYTES : 0) + warp * EPILOGUE_BYTES);
        const int rows_left = (int)(rows - cur_tile.row0 < TILE_M ? rows - cur_tile.row0 : TILE_M);
        const int columns_left = (int)(columns - cur_tile.column0 < TILE_N ? columns - cur_tile.column0 : TILE_N);
        if (rows_left == TILE_M && columns_left == TILE_N)
            epilogue_via_smem<true>(epilogue_smem, accum, warp_row, warp_column, rows_left, columns_left, load_columns, emit);
        else
            epilogue_via_smem<false>(epilogue_smem, accum, warp_row, warp_column, rows_left, columns_left, load_columns, emit);
        if (is_last) break;
        __syncthreads();  // all threads have finished with the tables of this tile
        cur_tile = next;
        work_item += gridDim.x;
        buffer ^= 1;
    }
    cp_async_wait<0>();
}
