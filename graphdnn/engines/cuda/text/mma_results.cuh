// A warp's sums leave through shared memory of its own, sixteen rows at a time: neighbouring lanes then store neighbouring
// elements, and the text of the epilogue occurs once. emit(row, column, elements) gets WIDTH neighbours of one row.

constexpr int SLAB_PITCH = WN + 8;  // two rows' pairs in different banks
constexpr int SLAB_BYTES = 16 * SLAB_PITCH * (int)sizeof(Accumulator);

template <class Emit>
__device__ __forceinline__ void leave(
    Accumulator* slab, const Accumulator (&sum)[TILES_M][TILES_N][4], int row0, int column0, int rows_left, int columns_left,
    Emit emit
) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, pair = lane % 4 * 2;
    #pragma unroll 1
    for (int pass = 0; pass < TILES_M; ++pass) {
        #pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
            if (i != pass) continue;
            #pragma unroll
            for (int j = 0; j < TILES_N; ++j)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Pack<Accumulator, 2> pack;
                    pack[0] = sum[i][j][2 * half];
                    pack[1] = sum[i][j][2 * half + 1];
                    *(Pack<Accumulator, 2>*)(slab + (half * 8 + g) * SLAB_PITCH + j * 8 + pair) = pack;
                }
        }
        __syncwarp();
        #pragma unroll 1
        for (int n = lane; n < 16 * (WN / WIDTH); n += 32) {
            const int slab_row = n / (WN / WIDTH), slab_column = n % (WN / WIDTH) * WIDTH;
            const int row = row0 + pass * 16 + slab_row, column = column0 + slab_column;
            if (row >= rows_left || column >= columns_left) continue;
            const Pack<Accumulator, WIDTH> pack = load_pack<WIDTH>(slab + slab_row * SLAB_PITCH + slab_column);
            Accumulator acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = pack[e];
            emit(row, column, acc);
        }
        __syncwarp();
    }
}
