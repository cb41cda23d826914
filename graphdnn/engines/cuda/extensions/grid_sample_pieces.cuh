// A grid in pieces of PIECE_ROWS x PIECE_COLUMNS positions, one position for each lane of a warp.

static_assert(PIECE_ROWS * PIECE_COLUMNS == 32, "a lane for each position");

// The bounding box of upper left neighbours; empty if all positions are far away.
struct alignas(16) Box {
    int left, top, right, bottom;
};

struct Position {
    int row, column;
    bool is_one;  // pieces at the grid's end have fewer positions
};

// The position of this lane in a piece of its image's grid.
__device__ __forceinline__ Position position_in(int piece, const Params& p) {
    const int lane = (int)threadIdx.x % 32, across = (int)p.pieces_across, above = piece / across;
    const int row = above * PIECE_ROWS + lane / PIECE_COLUMNS;
    const int column = (piece - above * across) * PIECE_COLUMNS + lane % PIECE_COLUMNS;
    return {row, column, row < (int)p.rows && column < (int)p.columns};
}
