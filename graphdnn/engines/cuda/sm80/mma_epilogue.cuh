// Epilogue through shared memory. Each warp stages sixteen rows of its accumulators in shared memory of its own, so that
// consecutive lanes then store consecutive elements. A lane keeps its columns for all rows. WHOLE_TILE: no row or column of
// the tile lies outside C; the bounds checks disappear, and several rows are stored at once.

#include "mma_tile.cuh"

constexpr int EPILOGUE_PITCH = WARP_N + 8;  // the column pairs of two rows lie in different banks
constexpr int EPILOGUE_BYTES = 16 * EPILOGUE_PITCH * (int)sizeof(Accum);
constexpr int ROW_LANES = WARP_N / VEC_WIDTH < 32 ? WARP_N / VEC_WIDTH : 32;  // lanes that share a row
constexpr int LANE_ROWS = ROW_LANES / 2;  // rows of one lane in a pass of sixteen

// load_columns(column, inside) returns the column operands of a lane; emit(row, column, state, acc) stores VEC_WIDTH elements.
template <bool WHOLE_TILE, class LoadColumns, class Emit>
__device__ __forceinline__ void epilogue_via_smem(
    Accum* epilogue_smem, const Accum (&accum)[MMA_TILES_M][MMA_TILES_N][4], int row0, int column0, int rows_left, int columns_left,
    LoadColumns load_columns, Emit emit
) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, pair = lane % 4 * 2;
    constexpr int UNROLL_ROWS = !WHOLE_TILE ? 1 : LANE_ROWS * VEC_WIDTH <= 32 ? LANE_ROWS : 4;
    #pragma unroll 1
    for (int column_pass = 0; column_pass < WARP_N / VEC_WIDTH / ROW_LANES; ++column_pass) {
        const int smem_column = (column_pass * ROW_LANES + lane % ROW_LANES) * VEC_WIDTH, column = column0 + smem_column;
        const bool inside = WHOLE_TILE || column < columns_left;
        const auto columns_state = load_columns(column, inside);
        #pragma unroll 1
        for (int pass = 0; pass < MMA_TILES_M; ++pass) {
            #pragma unroll
            for (int i = 0; i < MMA_TILES_M; ++i) {
                if (i != pass) continue;
                #pragma unroll
                for (int j = 0; j < MMA_TILES_N; ++j)
                    #pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        Vec<Accum, 2> pack;
                        pack[0] = accum[i][j][2 * half];
                        pack[1] = accum[i][j][2 * half + 1];
                        *(Vec<Accum, 2>*)(epilogue_smem + (half * 8 + g) * EPILOGUE_PITCH + j * 8 + pair) = pack;
                    }
            }
            __syncwarp();
            #pragma unroll UNROLL_ROWS
            for (int i = 0; i < LANE_ROWS; ++i) {
                const int smem_row = lane / ROW_LANES + i * (32 / ROW_LANES), row = row0 + pass * 16 + smem_row;
                if (!WHOLE_TILE && (row >= rows_left || !inside)) continue;
                const Vec<Accum, VEC_WIDTH> pack = load_vec<VEC_WIDTH>(epilogue_smem + smem_row * EPILOGUE_PITCH + smem_column);
                Accum acc[VEC_WIDTH];
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = pack[e];
                emit(row, column, columns_state, acc);
            }
            __syncwarp();
        }
    }
}
