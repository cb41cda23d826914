// Each block has lines of its own, and another launch joins what blocks find.

constexpr bool KEEPS = SWEEPS;

__device__ __forceinline__ int parts_of(const Params& p) { return (int)p.parts; }
