// The residual of hopper_halo.cu: a result-shaped operand of the epilogue that TMA loads box by box during the main loop, so that
// the epilogue does not wait for memory, and no CTA asks for many bytes at once.
//
// Layout:   a box is a halo tile's output pixels by 64 bytes of channels, pixel after pixel: eight lanes read 128 bytes of it, from
//           all banks. Shared memory has room for half of a consumer's boxes.
// Pipeline: the consumers read the first half into registers in the middle of the main loop, the second while its last MMAs run.
//           TMA bytes complete `full`, an arrival of each warp of the consumer completes `empty`.
//
// Required constants: those of halo_tile.cuh, and Residual: the element type.

#include "hopper_pipeline.cuh"
#include "epilogue_store.cuh"
#include "halo_tile.cuh"

constexpr int BOX_ROW_BYTES = 64, BOX_CHANNELS = BOX_ROW_BYTES / (int)sizeof(Residual), BOXES_N = (TILE_N + BOX_CHANNELS - 1) / BOX_CHANNELS;
constexpr int BOX_BYTES = TILE_H * TILE_W * BOX_ROW_BYTES, BOXES = HALO_TILES * BOXES_N;  // of a consumer
constexpr int FIRST_HALF_BOXES = BOXES / 2, LAST_HALF_BOXES = BOXES - FIRST_HALF_BOXES;
constexpr int RESIDUAL_BYTES = CONSUMER_WARPGROUPS * LAST_HALF_BOXES * BOX_BYTES;
static_assert(!FLAT_ROWS && !WEIGHT_STATIONARY && BOXES > 1, "MMA rows are the pixels of halo tiles");

__device__ __forceinline__ smem_addr_t residual_full(smem_addr_t barriers, int consumer) { return barriers + 8 * consumer; }
__device__ __forceinline__ smem_addr_t residual_empty(smem_addr_t barriers, int consumer) { return barriers + 8 * (CONSUMER_WARPGROUPS + consumer); }
__device__ __forceinline__ void init_residual_barriers(smem_addr_t barriers) {
    init_pipeline<CONSUMER_WARPGROUPS>(residual_full(barriers, 0), residual_empty(barriers, 0), 4);
}

// Runs in the filters' producer, which is at most FILTER_STAGES taps ahead of the MMAs. So many taps after the consumers read a half,
// they have read it, and the first box of the next half does not wait for them. All boxes are requested before the consumers wait.
struct ResidualLoader {
    smem_addr_t boxes, barriers;
    int half, consumer, slot, halo_tile, column, phase = 1;  // the next box

    __device__ __forceinline__ ResidualLoader(smem_addr_t boxes, smem_addr_t barriers) : boxes(boxes), barriers(barriers) {}
    __device__ __forceinline__ void begin(int first_halo_tile, int first_column) {
        half = consumer = slot = 0;
        halo_tile = first_halo_tile;
        column = first_column;
    }
    __device__ __forceinline__ void load_box(const Params& p) {
        const int count = half == 0 ? FIRST_HALF_BOXES : LAST_HALF_BOXES, box = half == 0 ? slot : slot + FIRST_HALF_BOXES;
        const smem_addr_t full = residual_full(barriers, consumer);
        if (slot == 0) {
            mbarrier_wait_parity(residual_empty(barriers, consumer), phase);
            mbarrier_expect_tx(full, count * BOX_BYTES);
        }
        const HaloTileCoord coord = decode_halo_tile(p, halo_tile + consumer * HALO_TILES + box / BOXES_N);
        const smem_addr_t to = boxes + (consumer * LAST_HALF_BOXES + slot) * BOX_BYTES;
        const int channel = column + box % BOXES_N * BOX_CHANNELS;
        if constexpr (SPATIAL == 3) tma_load_tile(to, p.residual[0], full, channel, coord.w, coord.h, coord.d, coord.n);
        else tma_load_tile(to, p.residual[0], full, channel, coord.w, coord.h, coord.n);
        if (++slot < count) return;
        slot = 0;
        if (++consumer < CONSUMER_WARPGROUPS) return;
        consumer = 0;
        ++half;
        phase ^= 1;
    }
    // `tap` counts the taps of all K blocks, whose filters have been requested; at `middle` the consumers read the first half.
    __device__ __forceinline__ void after_tap(const Params& p, int tap, int middle) {
        if (tap == middle)
            while (half == 0) load_box(p);
        else if (half < 2 && tap > (half == 0 ? FILTER_STAGES : middle + FILTER_STAGES)) load_box(p);
    }
    __device__ __forceinline__ void finish(const Params& p) {
        while (half < 2) load_box(p);
    }
};

// A thread's residual elements: for each of its rows, 8 of each 32 columns.
struct ResidualFragment {
    Vec<Residual, VEC_WIDTH> vec[MMA_TILES_M][TILE_N / 32][2][8 / VEC_WIDTH];

    // Reads the elements of the first or of the last half's boxes.
    template <bool FIRST_HALF>
    __device__ __forceinline__ void load(const unsigned char* boxes, smem_addr_t barriers, int consumer, int& phase) {
        const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
        const unsigned char* const consumer_boxes = boxes + consumer * LAST_HALF_BOXES * BOX_BYTES;
        mbarrier_wait_parity(residual_full(barriers, consumer), phase);
        phase ^= 1;
        #pragma unroll
        for (int j = 0; j < MMA_TILES_M; ++j)
            #pragma unroll
            for (int block = 0; block < TILE_N / 32; ++block)
                #pragma unroll
                for (int h = 0; h < 2; ++h)
                    #pragma unroll
                    for (int i = 0; i < 8 / VEC_WIDTH; ++i) {
                        const int mma_tile = j % MMA_TILES_PER_HALO_TILE, first = i * VEC_WIDTH;
                        const int pixel = (8 * (mma_tile / (TILE_W / 8)) + warp * 2 + h) * TILE_W + 8 * (mma_tile % (TILE_W / 8)) + lane / 4;
                        const int offset = first / VEC_N * (4 * VEC_N) + first % VEC_N;
                        const int box = j / MMA_TILES_PER_HALO_TILE * BOXES_N + (block * 32 + offset) / BOX_CHANNELS;  // the same for all lanes
                        if ((box < FIRST_HALF_BOXES) != FIRST_HALF) continue;
                        const int channel = (block * 32 + offset) % BOX_CHANNELS + lane % 4 * VEC_N;
                        vec[j][block][h][i] = *(const Vec<Residual, VEC_WIDTH>*)(
                            consumer_boxes + (box - (FIRST_HALF ? 0 : FIRST_HALF_BOXES)) * BOX_BYTES + pixel * BOX_ROW_BYTES +
                            channel * (int)sizeof(Residual)
                        );
                    }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(residual_empty(barriers, consumer));
    }
    __device__ __forceinline__ void copy_to(EpilogueOperands& operands, int j, int block, int h) const {
        #pragma unroll
        for (int i = 0; i < 8 / VEC_WIDTH; ++i)
            #pragma unroll
            for (int e = 0; e < VEC_WIDTH; ++e) operands.columns[i].residual[e] = vec[j][block][h][i].data[e];
    }
};
