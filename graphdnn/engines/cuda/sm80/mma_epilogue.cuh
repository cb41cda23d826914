// A warp's sums leave through shared memory of its own, sixteen rows at a time: neighbouring lanes then store neighbouring
// elements. A lane stays in its columns; WHOLE tiles are stored without looking for their ends, several rows at once.

constexpr int SLAB_PITCH = WN + 8;  // two rows' pairs in different banks
constexpr int SLAB_BYTES = 16 * SLAB_PITCH * (int)sizeof(Accum);
constexpr int LANES = WN / WIDTH < 32 ? WN / WIDTH : 32;  // side by side in a row
constexpr int EACH = LANES / 2;                           // rows of a lane among sixteen

// stand(column) gives what a lane keeps of its columns; emit(row, place, elements) gets WIDTH neighbours of one row.
template <bool WHOLE, class Stand, class Emit>
__device__ __forceinline__ void leave(
    Accum* slab, const Accum (&sum)[TILES_M][TILES_N][4], int row0, int column0, int rows_left, int columns_left,
    Stand stand, Emit emit
) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, pair = lane % 4 * 2;
    constexpr int AT_ONCE = !WHOLE ? 1 : EACH * WIDTH <= 32 ? EACH : 4;
    #pragma unroll 1
    for (int across = 0; across < WN / WIDTH / LANES; ++across) {
        const int slab_column = (across * LANES + lane % LANES) * WIDTH, column = column0 + slab_column;
        const bool inside = WHOLE || column < columns_left;
        const auto place = stand(column, inside);
        #pragma unroll 1
        for (int pass = 0; pass < TILES_M; ++pass) {
            #pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
                if (i != pass) continue;
                #pragma unroll
                for (int j = 0; j < TILES_N; ++j)
                    #pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        Vec<Accum, 2> pack;
                        pack[0] = sum[i][j][2 * half];
                        pack[1] = sum[i][j][2 * half + 1];
                        *(Vec<Accum, 2>*)(slab + (half * 8 + g) * SLAB_PITCH + j * 8 + pair) = pack;
                    }
            }
            __syncwarp();
            #pragma unroll AT_ONCE
            for (int i = 0; i < EACH; ++i) {
                const int slab_row = lane / LANES + i * (32 / LANES), row = row0 + pass * 16 + slab_row;
                if (!WHOLE && (row >= rows_left || !inside)) continue;
                const Vec<Accum, WIDTH> pack = load_vec<WIDTH>(slab + slab_row * SLAB_PITCH + slab_column);
                Accum acc[WIDTH];
                #pragma unroll
                for (int e = 0; e < WIDTH; ++e) acc[e] = pack[e];
                emit(row, column, place, acc);
            }
            __syncwarp();
        }
    }
}
