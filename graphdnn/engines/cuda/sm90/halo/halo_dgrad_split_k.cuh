// What the products of a strided data gradient read: copies of dy, and filters that stay in shared memory.

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int LANDING = PIXELS * ROW, STAGE_BYTES = (LANDING + 1023) / 1024 * 1024;
// A tap's filters, 128 bytes of k or 64 steps of it deep.
constexpr int FILTER_ROW = ACROSS_FILTER ? BN * (int)sizeof(Element) : ROW, FILTER_ROWS = ACROSS_FILTER ? PANEL : BN;
constexpr int FILTER_BYTES = FILTER_ROWS * FILTER_ROW, OF_STEP = ACROSS_FILTER ? 16 * FILTER_ROW >> 4 : 32 >> 4;
static_assert(BM == 64 * CONSUMERS && !(WGRAD || TURNED), "64 places of a consumer");
static_assert(FILTER_ROW == 128 || FILTER_ROW == 64, "swizzles that there are");

__device__ __forceinline__ matrix_t filters_at(shared_t address) {
    const matrix_t between_panels = ACROSS_FILTER ? FILTER_BYTES >> 4 : 1, between_eights = (8 * FILTER_ROW) >> 4;
    const matrix_t swizzled = FILTER_ROW == 128 ? 1 : 2;
    return (matrix_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}

// A consumer's ring of copies; `memory`: where its first stage is.
struct Ring { shared_t stages, full, empty; const unsigned char* memory; };
