// Coordinates of an image tile. The tile index counts along q first, then p, then n.
struct Tile { int n, p, q; };

__device__ __forceinline__ Tile tile_of(const Params& p, long long index) {
    const unsigned int row = (unsigned int)index / (unsigned int)p.tiles_q, n = row / (unsigned int)p.tiles_p;
    return {(int)n, (int)(row - n * (unsigned int)p.tiles_p), (int)((unsigned int)index - row * (unsigned int)p.tiles_q)};
}
