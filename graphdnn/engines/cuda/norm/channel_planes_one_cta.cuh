// A CTA has all segments of its rows.

#define IN_CLUSTERS

constexpr int PARTS = 1;
constexpr bool KEEPS = true;

__device__ __forceinline__ int parts_of(const Params&) { return PARTS; }
__device__ __forceinline__ void greet_parts() {}
__device__ __forceinline__ void over_parts(const Params&, int, Compute*, Compute (*)[CHANNELS]) {}
