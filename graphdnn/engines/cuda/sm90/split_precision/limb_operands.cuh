// Wide operands on tensor cores of bytes and 16-bit floats: the gathered operand comes to shared memory as it is, and a
// warp splits it into planes while it takes it to registers; the planes of the filter lie in memory already.
//
// A plane's part in registers is that of an instruction: lane 4g + q has rows g and g + 8. Which channels stand at an
// instruction's place of k follows from how a lane gets its elements; the filter's planes have them in the same order
// (`channel_at`).

typedef unsigned int word_t;

constexpr int LINES_OF_FILTER = FILTER_ROW / LINE;  // copies of a stage's planes

// Bytes of k of a plane in a stage.
constexpr int PLANE_ROW = FILTER_ROW / PLANES_B;

// The filter's planes in shared memory, LINE bytes a row.
__device__ __forceinline__ smem_desc_t planes_at(smem_addr_t address) {
    const smem_desc_t between_eights = (8 * LINE) >> 4, swizzled = LINE == 128 ? 1 : LINE == 64 ? 2 : 3;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | (smem_desc_t)1 << 16 | between_eights << 32 | swizzled << 62;
}
// A block of k, 32 bytes, of one plane.
__device__ __forceinline__ smem_desc_t plane_at(smem_desc_t b, int plane, int block) {
    const int at = plane * PLANE_ROW + block * 32;
    return b + ((at / LINE * (TILE_N * LINE) + at % LINE) >> 4);
}

// Where a lane reads in 16 rows of a stage, from `memory` on: 16-byte parts are exchanged by the row's number modulo 8.
__device__ __forceinline__ int lane_in_rows(int rows) {
    const int lane = (int)threadIdx.x % 32;
    return rows + lane % 16 * SWIZZLE_BYTES + ((lane / 16 ^ lane % 8) << 4);
}
// RowCoords g and g + 8 of two neighbouring parts, `part` and the next: the first one's rows g, g + 8, the second one's.
__device__ __forceinline__ void load_parts(word_t (&to)[4], const unsigned char* memory, int lane_at, int part) {
    load_matrices<false>(to, memory, lane_at ^ part << 4);
}

__device__ __forceinline__ word_t bytes_of(word_t low, word_t high, word_t which) { return __byte_perm(low, high, which); }

// ColumnBlock `block` of k of a warp's 16 rows.
template <class Element, int PLANES>
__device__ __forceinline__ void load_planes(word_t (&to)[PLANES][4], const unsigned char* memory, int lane_at, int block) {
    if constexpr (sizeof(Element) == 1) {
        load_parts(to[0], memory, lane_at, 2 * block);
    } else if constexpr (sizeof(Element) == 2) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            word_t v[4];
            load_parts(v, memory, lane_at, 4 * block + 2 * half);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                to[0][2 * half + h] = bytes_of(v[h], v[2 + h], 0x6420);
                to[1][2 * half + h] = bytes_of(v[h], v[2 + h], 0x7531);
            }
        }
    } else if constexpr (same<Element, float>) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            word_t v[4];
            load_parts(v, memory, lane_at, 4 * block + 2 * half);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float x = __uint_as_float(v[h]), y = __uint_as_float(v[2 + h]);
                split_pair(x, y, to[0][2 * half + h], to[1][2 * half + h], to[2][2 * half + h]);
            }
        }
    } else {
        const int box = lane_at + block * (TILE_M * SWIZZLE_BYTES);
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            word_t v[2][4];
            load_parts(v[0], memory, box, 4 * half);
            load_parts(v[1], memory, box, 4 * half + 2);
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const word_t low0 = bytes_of(v[0][h], v[0][2 + h], 0x5140), low1 = bytes_of(v[1][h], v[1][2 + h], 0x5140);
                const word_t high0 = bytes_of(v[0][h], v[0][2 + h], 0x7362), high1 = bytes_of(v[1][h], v[1][2 + h], 0x7362);
                to[0][2 * half + h] = bytes_of(low0, low1, 0x5410);
                to[1][2 * half + h] = bytes_of(low0, low1, 0x7632);
                to[2][2 * half + h] = bytes_of(high0, high1, 0x5410);
                to[3][2 * half + h] = bytes_of(high0, high1, 0x7632);
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

// The stages of one piece of work, in order: `slot(a, b, barrier)` waits for a free one.
template <class Acquire> __device__ __forceinline__ void fill_planes(const Params& p, const WorkTile& w, Acquire acquire) {
    const int blocks = (int)p.channel_blocks, channel = w.group * (int)p.channels;
    const int row = w.group * (int)p.filter_rows + w.tile_n * TILE_N;
    int start[3], offset[3];
    const Pixel pixel = decode_pixel(p, w.residue, w.tile_m * TILE_M);
    im2col_start(p, w.residue, pixel, start);
    Tap tap = decode_tap(p, w.residue, w.first / blocks);
    int block = w.first % blocks;
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        smem_addr_t a, b, barrier;
        acquire(a, b, barrier);
        tap_offset(p, w.residue, tap, offset);
        int in_filter = (int)p.filter_start[w.residue];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += tap.at[d] * (int)p.filter_step[d];
        #pragma unroll
        for (int i = 0; i < BOXES; ++i)
            tma_load_im2col<SPATIAL>(
                a + i * (TILE_M * SWIZZLE_BYTES), p.im2col_map[w.residue], barrier, channel + block * CHANNELS + i * (CHANNELS / BOXES),
                pixel.n, start, offset
            );
        #pragma unroll
        for (int i = 0; i < LINES_OF_FILTER; ++i)
            tma_load_tile(b + i * (TILE_N * LINE), p.dense_map[0], barrier, (in_filter * blocks + block) * FILTER_ROW + i * LINE, row);
        if (++block == blocks) block = 0, advance_tap(p, w.residue, tap);
    }
}

constexpr int A_BYTES = TILE_M * SWIZZLE_BYTES * BOXES, B_BYTES = TILE_N * FILTER_ROW;
static_assert(TILE_M == 64 * CONSUMER_WARPGROUPS && TILE_N % 32 == 0, "whole panels");
static_assert(A_BYTES % 1024 == 0 && B_BYTES % 1024 == 0, "rows of a stage are exchanged from its beginning on");
static_assert(!FILTER_MN_MAJOR, "filters lie along k here");

// The stages as one lane of those that multiply sees them.
struct Ring {
    const unsigned char* memory;
    int lane_at;  // its place in the first stage
    smem_addr_t b, full, empty;

    // Each warp frees a stage for itself: it has read its rows and multiplied them.
    __device__ __forceinline__ void release(int stage) const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * stage);
    }
};
