// Pieces of partial sums where all tiles are split: those of a tile and a consumer's 64 rows follow each other.
__device__ __forceinline__ int pieces_of_part(const Params& p) { return (int)p.tiles * (CONSUMERS * MI * BLOCKS_OF_TILE); }

__device__ __forceinline__ int piece_number(int tile, int consumer, int j, int block) {
    return ((tile * CONSUMERS + consumer) * MI + j) * BLOCKS_OF_TILE + block;
}

__device__ __forceinline__ Summed summed_at(const Params& p, int piece) {
    Summed found;
    found.block = take(piece, BLOCKS_OF_TILE);
    found.row = take(piece, CONSUMERS * MI) * 64;
    found.w = work_of(p, piece);
    return found;
}
