// Each element of a pack is of a row of its own.

constexpr int ROW_WIDTH = VECTOR;

__device__ __forceinline__ int row_of(int e) { return e; }
