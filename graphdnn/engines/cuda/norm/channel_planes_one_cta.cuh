// A CTA has all segments of its rows.

#define IN_CLUSTERS

constexpr int PARTS = 1;
constexpr bool CACHES = true;

__device__ __forceinline__ int slices_of(const Params&) { return PARTS; }
__device__ __forceinline__ void announce_cluster() {}
__device__ __forceinline__ void reduce_slices(const Params&, int, Compute*, Compute (*)[CHANNELS]) {}
