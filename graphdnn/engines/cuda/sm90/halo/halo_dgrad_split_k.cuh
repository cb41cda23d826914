// What the products of a strided data gradient read: copies of dy, and filters that stay in shared memory.

constexpr int THREADS = 128 * (CONSUMER_WARPGROUPS + 1);
constexpr int LANDING = PIXELS * SWIZZLE_BYTES, STAGE_BYTES = (LANDING + 1023) / 1024 * 1024;
// A tap's filters, 128 bytes of k or 64 steps of it deep.
constexpr int FILTER_ROW = FILTER_MN_MAJOR ? TILE_N * (int)sizeof(Element) : SWIZZLE_BYTES, FILTER_ROWS = FILTER_MN_MAJOR ? SLAB_ROWS : TILE_N;
constexpr int FILTER_BYTES = FILTER_ROWS * FILTER_ROW, OF_STEP = FILTER_MN_MAJOR ? 16 * FILTER_ROW >> 4 : 32 >> 4;
static_assert(TILE_M == 64 * CONSUMER_WARPGROUPS && !(WGRAD || SWAP_AB), "64 places of a consumer");
static_assert(FILTER_ROW == 128 || FILTER_ROW == 64, "swizzles that there are");

__device__ __forceinline__ smem_desc_t filters_at(smem_addr_t address) {
    const smem_desc_t between_panels = FILTER_MN_MAJOR ? FILTER_BYTES >> 4 : 1, between_eights = (8 * FILTER_ROW) >> 4;
    const smem_desc_t swizzled = FILTER_ROW == 128 ? 1 : 2;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}

// A consumer's ring of copies; `memory`: where its first stage is.
struct Ring { smem_addr_t stages, full, empty; const unsigned char* memory; };
