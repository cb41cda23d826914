// Each element of a vector belongs to its own row.

constexpr int ROWS_PER_THREAD = VEC_WIDTH;

__device__ __forceinline__ int row_of(int e) { return e; }
