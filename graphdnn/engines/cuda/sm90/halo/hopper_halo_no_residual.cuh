// Nothing as large as the result is copied into shared memory.

constexpr int RESIDUAL_BYTES = 0;
__device__ __forceinline__ void begin_residual(smem_addr_t) {}
struct ResidualCopies {
    __device__ __forceinline__ ResidualCopies(smem_addr_t, smem_addr_t) {}
    __device__ __forceinline__ void begin(int, int) {}
    __device__ __forceinline__ void step(const Params&, int, int) {}
    __device__ __forceinline__ void end(const Params&) {}
};
struct Ahead {
    template <bool> __device__ __forceinline__ void read(const unsigned char*, smem_addr_t, int, int&) {}
    __device__ __forceinline__ void bring(EpilogueOperands&, int, int, int) const {}
};
