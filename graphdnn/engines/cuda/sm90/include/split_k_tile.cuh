// Pieces of partial sums where all tiles are split: those of a tile and a consumer's 64 rows follow each other.
__device__ __forceinline__ int fragments_per_split(const Params& p) { return (int)p.tiles * (CONSUMER_WARPGROUPS * MMA_TILES_M * COLUMN_BLOCKS); }

__device__ __forceinline__ int fragment_index(int tile, int consumer, int j, int block) {
    return ((tile * CONSUMER_WARPGROUPS + consumer) * MMA_TILES_M + j) * COLUMN_BLOCKS + block;
}

__device__ __forceinline__ PartialTile partial_tile_at(const Params& p, int piece) {
    PartialTile found;
    found.block = divmod_inplace(piece, COLUMN_BLOCKS);
    found.row = divmod_inplace(piece, CONSUMER_WARPGROUPS * MMA_TILES_M) * 64;
    found.w = decode_work_tile(p, piece);
    return found;
}
