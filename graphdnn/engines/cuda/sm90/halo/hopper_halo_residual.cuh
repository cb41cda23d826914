// An operand as large as the result that the epilogue reads: the copy unit brings it while the products run, box by box, so
// that no block asks for much at once, and nobody waits for memory when sums leave.
//
// A box is a patch, 64 bytes of channels of each of its pixels, one after the other: eight lanes read 128 bytes of them from all
// banks. There is room for half of a block's boxes: threads read the first half into registers in the middle of the products,
// the second one while the last products run.

constexpr int BOX_ROW = 64, BOX_CHANNELS = BOX_ROW / (int)sizeof(Residual), BOXES_ACROSS = (TILE_N + BOX_CHANNELS - 1) / BOX_CHANNELS;
constexpr int BOX_BYTES = TALL * WIDE * BOX_ROW, BOXES = PATCHES * BOXES_ACROSS;  // of a consumer
constexpr int FIRST_BOXES = BOXES / 2, LAST_BOXES = BOXES - FIRST_BOXES;
constexpr int RESIDUAL_BYTES = CONSUMER_WARPGROUPS * LAST_BOXES * BOX_BYTES;
static_assert(!LINEAR && !RESIDENT && BOXES > 1, "rows of a product are a patch's pixels");

// For each consumer: a half has landed, and each of its warps has read it.
__device__ __forceinline__ smem_addr_t full_residual(smem_addr_t barriers, int consumer) { return barriers + 8 * consumer; }
__device__ __forceinline__ smem_addr_t empty_residual(smem_addr_t barriers, int consumer) { return barriers + 8 * (CONSUMER_WARPGROUPS + consumer); }
__device__ __forceinline__ void begin_residual(smem_addr_t barriers) {
    init_pipeline<CONSUMER_WARPGROUPS>(full_residual(barriers, 0), empty_residual(barriers, 0), 4);
}

// Beside the copies of filters, which are some taps ahead of the products. A half is not sent before consumers have read the
// one before, so that its first box does not wait for them; nor later than they wait for it.
struct ResidualCopies {
    smem_addr_t to, barriers;
    int half, consumer, place, patch, column, phase = 1;

    __device__ __forceinline__ ResidualCopies(smem_addr_t to, smem_addr_t barriers) : to(to), barriers(barriers) {}
    __device__ __forceinline__ void begin(int first_patch, int first_column) {
        half = consumer = place = 0;
        patch = first_patch;
        column = first_column;
    }
    // One box.
    __device__ __forceinline__ void dsmem_store(const Params& p) {
        const int count = half == 0 ? FIRST_BOXES : LAST_BOXES, box = half == 0 ? place : place + FIRST_BOXES;
        const smem_addr_t full = full_residual(barriers, consumer);
        if (place == 0) {
            mbarrier_wait_parity(empty_residual(barriers, consumer), phase);
            mbarrier_expect_tx(full, count * BOX_BYTES);
        }
        const Corner corner = corner_of(p, patch + consumer * PATCHES + box / BOXES_ACROSS);
        const smem_addr_t into = to + (consumer * LAST_BOXES + place) * BOX_BYTES;
        const int channel = column + box % BOXES_ACROSS * BOX_CHANNELS;
        if constexpr (SPATIAL == 3) tma_load_tile(into, p.residual[0], full, channel, corner.w, corner.h, corner.d, corner.n);
        else tma_load_tile(into, p.residual[0], full, channel, corner.w, corner.h, corner.n);
        if (++place < count) return;
        place = 0;
        if (++consumer < CONSUMER_WARPGROUPS) return;
        consumer = 0;
        ++half;
        phase ^= 1;
    }
    // After the filters of the tap of that number; `middle`: the tap at which the first half is read.
    __device__ __forceinline__ void step(const Params& p, int number, int middle) {
        if (number == middle)
            while (half == 0) dsmem_store(p);
        else if (half < 2 && number > (half == 0 ? FILTERS : middle + FILTERS)) dsmem_store(p);
    }
    __device__ __forceinline__ void end(const Params& p) {
        while (half < 2) dsmem_store(p);
    }
};

// What a thread has read: 8 of each 32 columns, of each of its rows.
struct Ahead {
    Vec<Residual, VEC_WIDTH> pack[MMA_TILES_M][TILE_N / 32][2][8 / VEC_WIDTH];

    // A half of it, in the order of boxes.
    template <bool FIRST>
    __device__ __forceinline__ void read(const unsigned char* boxes, smem_addr_t barriers, int consumer, int& phase) {
        const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
        const unsigned char* const mine = boxes + consumer * LAST_BOXES * BOX_BYTES;
        mbarrier_wait_parity(full_residual(barriers, consumer), phase);
        phase ^= 1;
        #pragma unroll
        for (int j = 0; j < MMA_TILES_M; ++j)
            #pragma unroll
            for (int block = 0; block < TILE_N / 32; ++block)
                #pragma unroll
                for (int h = 0; h < 2; ++h)
                    #pragma unroll
                    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
                        const int eight = j % OF_PATCH, first = i * VEC_WIDTH;
                        const int pixel = (8 * (eight / (WIDE / 8)) + warp * 2 + h) * WIDE + 8 * (eight % (WIDE / 8)) + lane / 4;
                        const int place = first / VEC_N * (4 * VEC_N) + first % VEC_N;
                        // Which box: the same for all lanes.
                        const int box = j / OF_PATCH * BOXES_ACROSS + (block * 32 + place) / BOX_CHANNELS;
                        if ((box < FIRST_BOXES) != FIRST) continue;
                        const int channel = (block * 32 + place) % BOX_CHANNELS + lane % 4 * VEC_N;
                        pack[j][block][h][i] = *(const Vec<Residual, VEC_WIDTH>*)(
                            mine + (box - (FIRST ? 0 : FIRST_BOXES)) * BOX_BYTES + pixel * BOX_ROW + channel * (int)sizeof(Residual)
                        );
                    }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(empty_residual(barriers, consumer));
    }
    // Into what the epilogue keeps.
    __device__ __forceinline__ void bring(EpilogueOperands& held, int j, int block, int h) const {
        #pragma unroll
        for (int i = 0; i < 8 / VEC_WIDTH; ++i)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) held.kept[i].residual[e] = pack[j][block][h][i].at[e];
    }
};
