// Several CTAs divide the segments of a row. Their partial sums go to the workspace, and another launch combines them.

constexpr bool CACHES = HAS_SECOND_PASS;

__device__ __forceinline__ int slices_of(const Params& p) { return (int)p.parts; }
