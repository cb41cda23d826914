// Accumulators that are sums: of channels and of gradients.
__device__ __forceinline__ Compute identity() { return (Compute)0; }
__device__ __forceinline__ Compute combined(Compute a, Compute b) { return a + b; }
__device__ __forceinline__ Compute concluded(const Params&, Compute a) { return a; }
