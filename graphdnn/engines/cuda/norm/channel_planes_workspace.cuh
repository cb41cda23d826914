// Several CTAs divide the segments of a row. Their partial sums go to the workspace, and another launch combines them.

constexpr bool KEEPS = SWEEPS;

__device__ __forceinline__ int parts_of(const Params& p) { return (int)p.parts; }
