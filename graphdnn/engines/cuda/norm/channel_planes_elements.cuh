// Each element of a vector belongs to its own row.

constexpr int ROW_WIDTH = VECTOR;

__device__ __forceinline__ int row_of(int e) { return e; }
