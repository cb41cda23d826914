// Operands of split precision. TMA loads the im2col operand (A) into shared memory in its own type, and a warp splits it into
// limbs while it loads fragments. The filter's limbs (B) are in memory already.
//
// Each limb has the A fragment of a wgmma: lane 4g + q holds rows g and g + 8. ldmatrix decides which channel stands at which
// K coordinate of the MMA. The filter's limbs have their channels in the same order (`channel_at`).

#include "limbs.cuh"
#include "ldmatrix.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"

typedef unsigned int word_t;

constexpr int FILTER_BOXES = FILTER_ROW_BYTES / FILTER_SWIZZLE_BYTES;  // TMA boxes of a stage's filter limbs
constexpr int LIMB_ROW_BYTES = FILTER_ROW_BYTES / LIMBS_B;  // bytes of one filter row and one limb in a stage

// The descriptor of the filter's limbs: K-major, with a swizzle of FILTER_SWIZZLE_BYTES.
__device__ __forceinline__ smem_desc_t make_filter_desc(smem_addr_t address) {
    const smem_desc_t eight_row_stride = (8 * FILTER_SWIZZLE_BYTES) >> 4;
    const smem_desc_t swizzle_mode = FILTER_SWIZZLE_BYTES == 128 ? 1 : FILTER_SWIZZLE_BYTES == 64 ? 2 : 3;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | (smem_desc_t)1 << 16 | eight_row_stride << 32 | swizzle_mode << 62;
}
// MMA K step `k` (32 bytes) of one limb.
__device__ __forceinline__ smem_desc_t limb_desc(smem_desc_t b, int limb, int k) {
    const int offset = limb * LIMB_ROW_BYTES + k * 32;
    return b + ((offset / FILTER_SWIZZLE_BYTES * (TILE_N * FILTER_SWIZZLE_BYTES) + offset % FILTER_SWIZZLE_BYTES) >> 4);
}

// This lane's ldmatrix offset from `memory`, for 16 rows that begin at byte `rows_offset`. The 128-byte swizzle exchanges
// 16-byte vectors by the row's number modulo 8.
__device__ __forceinline__ int thread_fragment_offset(int rows_offset) {
    const int lane = (int)threadIdx.x % 32;
    return rows_offset + lane % 16 * SWIZZLE_BYTES + ((lane / 16 ^ lane % 8) << 4);
}
// Loads two neighbouring 16-byte vectors of rows g and g + 8: `to` has vector `vector` of both rows, then the next vector.
__device__ __forceinline__ void load_vector_pair(word_t (&to)[4], const unsigned char* memory, int fragment, int vector) {
    ldmatrix_x4<false>(to, memory, fragment ^ vector << 4);
}

__device__ __forceinline__ word_t select_bytes(word_t low, word_t high, word_t selector) { return __byte_perm(low, high, selector); }

// Loads MMA K step `k` of a warp's 16 rows, and splits it into limbs.
template <class Element, int LIMBS>
__device__ __forceinline__ void load_limbs(word_t (&to)[LIMBS][4], const unsigned char* memory, int fragment, int k) {
    if constexpr (sizeof(Element) == 1) {
        load_vector_pair(to[0], memory, fragment, 2 * k);
    } else if constexpr (sizeof(Element) == 2) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            word_t v[4];
            load_vector_pair(v, memory, fragment, 4 * k + 2 * half);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                to[0][2 * half + h] = select_bytes(v[h], v[2 + h], 0x6420);
                to[1][2 * half + h] = select_bytes(v[h], v[2 + h], 0x7531);
            }
        }
    } else if constexpr (same<Element, float>) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            word_t v[4];
            load_vector_pair(v, memory, fragment, 4 * k + 2 * half);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float x = __uint_as_float(v[h]), y = __uint_as_float(v[2 + h]);
                split_pair(x, y, to[0][2 * half + h], to[1][2 * half + h], to[2][2 * half + h]);
            }
        }
    } else {
        const int box = fragment + k * (TILE_M * SWIZZLE_BYTES);
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            word_t v[2][4];
            load_vector_pair(v[0], memory, box, 4 * half);
            load_vector_pair(v[1], memory, box, 4 * half + 2);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const word_t low0 = select_bytes(v[0][h], v[0][2 + h], 0x5140), low1 = select_bytes(v[1][h], v[1][2 + h], 0x5140);
                const word_t high0 = select_bytes(v[0][h], v[0][2 + h], 0x7362), high1 = select_bytes(v[1][h], v[1][2 + h], 0x7362);
                to[0][2 * half + h] = select_bytes(low0, low1, 0x5410);
                to[1][2 * half + h] = select_bytes(low0, low1, 0x7632);
                to[2][2 * half + h] = select_bytes(high0, high1, 0x5410);
                to[3][2 * half + h] = select_bytes(high0, high1, 0x7632);
            }
        }
    }
}

template <int COUNT> __device__ __forceinline__ void fence_accumulators(word_t (&x)[COUNT]) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(x[i])::"memory");
#endif
}

// Issues the TMA loads of a work tile. `acquire(a, b, barrier)` waits for a free stage and returns its addresses.
template <class Acquire> __device__ __forceinline__ void load_limb_k_tiles(const Params& p, const WorkTile& w, Acquire acquire) {
    const int channel_blocks = (int)p.channel_blocks, channel = w.group * (int)p.channels;
    const int row = w.group * (int)p.filter_rows + w.tile_n * TILE_N;
    int start[3], offset[3];
    const Pixel pixel = decode_pixel(p, w.residue, w.tile_m * TILE_M);
    im2col_start(p, w.residue, pixel, start);
    Tap tap = decode_tap(p, w.residue, w.k_begin / channel_blocks);
    int channel_block = w.k_begin % channel_blocks;
    #pragma unroll 1
    for (int k_tile = w.k_begin; k_tile < w.k_end; ++k_tile) {
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        tap_offset(p, w.residue, tap, offset);
        int filter_tap = (int)p.first_filter_tap[w.residue];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) filter_tap += tap.coord[d] * (int)p.filter_tap_stride[d];
        #pragma unroll
        for (int i = 0; i < BOXES; ++i)
            tma_load_im2col<SPATIAL>(
                a + i * (TILE_M * SWIZZLE_BYTES), p.im2col_map[w.residue], barrier,
                channel + channel_block * CHANNELS + i * (CHANNELS / BOXES), pixel.n, start, offset
            );
        #pragma unroll
        for (int i = 0; i < FILTER_BOXES; ++i)
            tma_load_tile(
                b + i * (TILE_N * FILTER_SWIZZLE_BYTES), p.dense_map[0], barrier,
                (filter_tap * channel_blocks + channel_block) * FILTER_ROW_BYTES + i * FILTER_SWIZZLE_BYTES, row
            );
        if (++channel_block == channel_blocks) channel_block = 0, advance_tap(p, w.residue, tap);
    }
}

constexpr int A_BYTES = TILE_M * SWIZZLE_BYTES * BOXES, B_BYTES = TILE_N * FILTER_ROW_BYTES;
static_assert(TILE_M == 64 * CONSUMER_WARPGROUPS && TILE_N % 32 == 0, "each consumer warpgroup has 64 rows");
static_assert(A_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "the swizzle pattern repeats every 1024 bytes");
static_assert(!FILTER_MN_MAJOR, "the filter limbs are K-major");

// The pipeline's stages as one consumer thread reads them.
struct ConsumerSmem {
    const unsigned char* memory;
    int fragment;  // this lane's ldmatrix offset in the first stage
    smem_addr_t b, full, empty;

    // Each warp releases a stage by itself, after it has loaded and multiplied its own rows.
    __device__ __forceinline__ void release(int stage) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * stage);
    }
};
