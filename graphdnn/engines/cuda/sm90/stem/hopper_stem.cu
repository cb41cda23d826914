// Forward convolution of an image with few channels (1 to 4), the first layer of a network, by wgmma for sm_90a.
//
// Tile:       TILE_ROWS whole output rows by TILE_N channels. A warpgroup multiplies 64 pixels at a time: each of its warps has
//             16 neighbouring pixels. K runs over the windows of the filter rows, as in direct_stem.cu
//             (direct_stem_windows.cuh).
// Pipeline:   persistent; STAGES stages of image rows, one tile in each. `full` completes when the rows of a tile have arrived,
//             `empty` by one arrival of each consumer warp. A fragments are loaded in two buffers: wgmma multiplies one, while
//             the warp loads the other, at the end already for its next pixels.
// Warp roles: LOADS_BY_TMA: all warps are consumers, and warp 0 also issues the TMA load of a later tile whenever it finishes
//             a tile. Otherwise the last 128 threads are the producer, by cp.async. Consumer warpgroups take groups of 64
//             pixels in turn, from tile to tile.
// Layout:     shared memory has the filters, K-major in slabs of TILE_N rows and 128 bytes with the 128-byte swizzle; then the
//             stages, as plain rows with zeros around the image; the filters as they arrive; and the barriers. A is loaded from
//             the image rows into registers, without im2col (wgmma RS).
// Epilogue:   output channels are permuted over N so that a lane has 8 contiguous channels of every 32 of its pixel.
//
// Required constants (from the generator), besides those of direct_stem_rows.cuh and direct_stem_windows.cuh:
//   TILE_N          channels of a CTA, a multiple of 32
//   STAGES          tiles of image rows in shared memory, at least 2
//   LOADS_BY_TMA    TMA loads the image rows; otherwise threads copy them
//   THREADS         of a CTA; consumers and, without LOADS_BY_TMA, 128 producers
//   LEADING_ELEMENT 1 if K includes the element before a window, so that pairs of elements are aligned
//   FILTER_IS_PACKED 1 if filters are contiguous as [r][s][c]
//   FILTER_COPY_ELEMS elements of a copy of filters, 1 or more
//   VEC_WIDTH       channels of an epilogue call, 1 to 8

#include "direct_copy.cuh"
#include "hopper_pipeline.cuh"
#include "direct_stem_rows.cuh"
#include "direct_stem_windows.cuh"

constexpr int K_STEPS = (K_SLICES + 1) / 2;                         // MMA K steps of 16
constexpr int FILTER_SLABS = (K_SLICES + 7) / 8;                    // of 64 K
constexpr int FILTER_BYTES = FILTER_SLABS * TILE_N * SWIZZLE_BYTES;  // the filters for one pixel parity
constexpr int K_PARTS = (K_STEPS + 11) / 12 * 2;                  // even: parts alternate between two register buffers
constexpr int PART_K_STEPS = (K_STEPS + K_PARTS - 1) / K_PARTS;
constexpr int CONSUMER_THREADS = THREADS - (LOADS_BY_TMA ? 0 : 128);
constexpr int SMEM_FILTER_BYTES = (TILE_N * FILTER_SIZE * (int)sizeof(Filter) + 15) / 16 * 16;
static_assert(sizeof(Element) == 2 && CONSUMER_THREADS % 128 == 0 && TILE_N % 32 == 0, "whole warpgroups, and whole column blocks");

template <int COUNT> __device__ __forceinline__ void fence_accumulators(unsigned int (&x)[COUNT][4]) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(x[i][j])::"memory");
#endif
}

// Makes shared memory that threads wrote visible to wgmma.
__device__ __forceinline__ void publish_filters() {
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// A tile of a CTA: the rows of tile row `row` in the result's depth slice n.
struct Tile {
    int tile, n, row;
    __device__ __forceinline__ Tile(const Params& p, unsigned int tile) : tile((int)tile) {
        n = (int)(tile / (unsigned int)p.row_tiles), row = (int)tile - n * (int)p.row_tiles;
    }
    // `stride`: the distance from a tile of the CTA to its next one.
    __device__ __forceinline__ void advance(const Params& p, const Tile& stride) {
        tile += stride.tile, n += stride.n, row += stride.row;
        if (row >= (int)p.row_tiles) row -= (int)p.row_tiles, ++n;
    }
};

// The 64 pixels of a warpgroup, as a lane sees them: its first pixel, at column q of row `row`, and the window of that pixel.
struct PixelGroup {
    const Element* window;
    int n, row, q, parity;
    bool is_inside;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_stem(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Element* const stages = (Element*)(memory + PIXEL_PARITIES * FILTER_BYTES);
    Filter* const smem_filter = (Filter*)(stages + STAGES * STAGE);
    const smem_addr_t full = smem_addr(smem_filter) + SMEM_FILTER_BYTES, empty = full + 8 * STAGES;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const bool is_producer = warp >= CONSUMER_THREADS / 32;
    const int first_channel = (int)blockIdx.y * TILE_N, tiles = (int)p.tiles;
    const Tile stride(p, gridDim.x);
    Tile tile(p, blockIdx.x), load_tile = tile;
    PipelineState<STAGES> pipe, load_pipe;

    // Loads the rows of `load_tile`. Generic, because only the Params of a kernel that loads by TMA have a tensor map.
    const auto load_rows = [&](const auto& p) {
        if constexpr (LOADS_BY_TMA) {
            if (lane == 0) {
                mbarrier_expect_tx(full + 8 * load_pipe.stage, STAGE * (int)sizeof(Element));
                const smem_addr_t to = smem_addr(stages + load_pipe.stage * STAGE), barrier = full + 8 * load_pipe.stage;
                const int before = -(LEFT_PAD_ELEMS * (int)sizeof(Element) / 8), h = load_tile.row * (TILE_ROWS * STRIDE_H) - (int)p.pad_h;
                const Slice out = slice_of(p, load_tile.n);
                if constexpr (SPATIAL == 3)
                    tma_load_tile(to, p.image[0], barrier, before, h, out.d * (int)p.stride_d - (int)p.pad_d, out.n);
                else tma_load_tile(to, p.image[0], barrier, before, h, out.n);
            }
        } else {
            load_image_rows<128>(p, stages + load_pipe.stage * STAGE, load_tile.tile, (int)threadIdx.x - CONSUMER_THREADS);
            cp_async_commit();
            cp_async_wait<0>();
            mbarrier_arrive(full + 8 * load_pipe.stage);
        }
        load_pipe.advance();
        load_tile.advance(p, stride);
    };

    // setup: filters, column operands, barriers, and the first tiles
    if (!is_producer) copy_filters<TILE_N, CONSUMER_THREADS>(p, smem_filter, first_channel);
    cp_async_commit();
    ColumnOperands operands[TILE_N / 4 / VEC_WIDTH];
    #pragma unroll
    for (int v = 0; v < TILE_N / 4; v += VEC_WIDTH) {
        const int channel = first_channel + v / 8 * 32 + 8 * j + v % 8;
        load_column_operands(p, output_coord(p, 0, channel < (int)p.channels_out ? channel : 0, 0, 0).coord, operands[v / VEC_WIDTH]);
    }
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + 8 * stage, LOADS_BY_TMA ? 1 : 128);
            mbarrier_init(empty + 8 * stage, CONSUMER_THREADS / 32);
        }
        fence_barrier_init();
    }
    if constexpr (LOADS_BY_TMA) {
        if (warp == 0) {
            __syncwarp();  // the barriers are initialized
            while (load_pipe.phase == 0 && load_tile.tile < tiles) load_rows(p);
        }
    } else {
        clear_margins(p, stages);
    }
    cp_async_wait<0>();
    __syncthreads();
    if (!is_producer) {
        for (int i = threadIdx.x; i < PIXEL_PARITIES * FILTER_SLABS * 8 * TILE_N; i += CONSUMER_THREADS) {  // 8 K of one column
            const int column = i % TILE_N, slice = i / TILE_N % (FILTER_SLABS * 8), parity = i / TILE_N / (FILTER_SLABS * 8);
            const int channel = column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
            const int r = slice / (FILTER_ROW_K / 8), first = slice % (FILTER_ROW_K / 8) * 8 - (parity ? 1 - LEADING_ELEMENT : LEADING_ELEMENT);
            Vec<Element, 8> vec;
            #pragma unroll
            for (int e = 0; e < 8; ++e) vec.data[e].bits = weight_at(p, smem_filter, channel, r, first + e);
            store_vec<8>((Element*)(memory + parity * FILTER_BYTES + slice / 8 * (TILE_N * SWIZZLE_BYTES) + column * SWIZZLE_BYTES +
                                    ((slice % 8 ^ column % 8) << 4)), vec);
        }
        publish_filters();
    }
    __syncthreads();

    // producer
    if (is_producer) {
        #pragma unroll 1
        while (load_tile.tile < tiles) {
            mbarrier_wait_parity(empty + 8 * load_pipe.stage, load_pipe.phase ^ 1);
            load_rows(p);
        }
        return;
    }

    // A group is 16 pixels of a row (of one parity); a warpgroup has four of them at a time, which are its unit of work.
    const int groups = TILE_ROWS * (int)p.column_tiles, units = (groups + 3) / 4 * PIXEL_PARITIES;
    const unsigned int inverse = 0xffffffffu / (unsigned int)p.column_tiles + 1u;  // 0 if there is one column tile
    int unit = warp / 4;
    // Advances to the tile that has `unit`. Returns false after the last tile.
    const auto advance_tile = [&] {
        while (unit >= units) {
            unit -= units;
            __syncwarp();
            if (lane == 0) mbarrier_arrive(empty + 8 * pipe.stage);
            if (LOADS_BY_TMA && warp == 0 && tile.tile != (int)blockIdx.x && load_tile.tile < tiles) {
                mbarrier_wait_parity(empty + 8 * load_pipe.stage, load_pipe.phase ^ 1);
                load_rows(p);
            }
            pipe.advance();
            tile.advance(p, stride);
            if (tile.tile >= tiles) return false;
            mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
        }
        return true;
    };
    const auto decode_pixels = [&] {
        PixelGroup pixels;
        pixels.parity = unit % PIXEL_PARITIES;
        const int warp_group = unit / PIXEL_PARITIES * 4 + warp % 4, group = warp_group < groups ? warp_group : groups - 1;
        const int row = inverse ? (int)((unsigned long long)group * inverse >> 32) : group;
        pixels.q = ((group - row * (int)p.column_tiles) * 16 + g) * PIXEL_PARITIES + pixels.parity;
        pixels.window = stages + pipe.stage * STAGE + row * STRIDE_H * PITCH + (int)p.window + (pixels.parity ? 2 * LEADING_ELEMENT - 1 : 0) +
                        pixels.q * (STRIDE_W * C) + 2 * j;
        pixels.n = tile.n;
        pixels.row = tile.row * TILE_ROWS + row;
        pixels.is_inside = warp_group < groups && pixels.row < (int)p.out_h;
        return pixels;
    };
    unsigned int a[2][PART_K_STEPS][4];
    // Loads the A fragments of one part of K.
    const auto load_a_fragments = [&](const PixelGroup& pixels, int part) {
        const int lead = pixels.parity ? 1 - LEADING_ELEMENT : LEADING_ELEMENT;
        // Masks that clear elements outside the window in its first and in its last pair.
        const unsigned int first_mask = lead && j == 0 ? 0xffff0000u : 0xffffffffu;
        const int last_element = FILTER_ROW_K - 8 + 2 * j - lead;
        const unsigned int last_mask = (last_element < WINDOW ? 0xffffu : 0u) | (last_element + 1 < WINDOW ? 0xffff0000u : 0u);
        #pragma unroll
        for (int i = 0; i < 2 * PART_K_STEPS; ++i) {
            const int slice = 2 * PART_K_STEPS * part + i, r = slice / (FILTER_ROW_K / 8), begin = slice % (FILTER_ROW_K / 8);
            unsigned int upper = 0, lower = 0;
            if (slice < K_SLICES) {
                const Element* const from = pixels.window + row_at(r) + begin * 8;
                upper = pair_at(from), lower = pair_at(from + 8 * A_ROW_STRIDE);
                if (HAS_LEADING_ELEMENT && begin == 0) upper &= first_mask, lower &= first_mask;
                if ((FILTER_ROW_K != WINDOW + LEADING_ELEMENT || PIXEL_PARITIES == 2) && begin == FILTER_ROW_K / 8 - 1) upper &= last_mask, lower &= last_mask;
            }
            a[part % 2][i / 2][i % 2 * 2] = upper;
            a[part % 2][i / 2][i % 2 * 2 + 1] = lower;
        }
    };
    float accum[TILE_N / 2];
    const auto multiply = [&](const PixelGroup& pixels, int part) {
        const smem_desc_t filters = make_desc<false>(smem_addr(memory) + pixels.parity * FILTER_BYTES);
        fence_accumulators(a[part % 2]);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < PART_K_STEPS; ++i) {
            const int k = PART_K_STEPS * part + i;
            if (k < K_STEPS)
                wgmma_rs(accum, a[part % 2][i], filters + (k / 4 * (TILE_N * SWIZZLE_BYTES) >> 4) + k % 4 * DESC_STEP_K<false>, k > 0);
        }
        wgmma_commit();
    };

    mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
    bool has_next = advance_tile();
    if (!has_next) return;
    PixelGroup next_pixels = decode_pixels();
    load_a_fragments(next_pixels, 0);
    load_a_fragments(next_pixels, 1);
    #pragma unroll 1
    while (has_next) {
        // main loop: the parts of K, then the first two parts of the next pixels
        const PixelGroup pixels = next_pixels;
        #pragma unroll
        for (int i = 0; i < TILE_N / 2; ++i) accum[i] = 0;
        fence_accumulators(accum);
        multiply(pixels, 0);
        multiply(pixels, 1);
        #pragma unroll
        for (int part = 2; part < K_PARTS; ++part) {
            wgmma_wait<1>();
            fence_accumulators(a[part % 2]);
            load_a_fragments(pixels, part);
            multiply(pixels, part);
        }
        unit += CONSUMER_THREADS / 128;
        has_next = advance_tile();
        if (has_next) next_pixels = decode_pixels();
        wgmma_wait<1>();
        fence_accumulators(a[0]);
        load_a_fragments(next_pixels, 0);
        wgmma_wait<0>();
        fence_accumulators(accum);
        fence_accumulators(a[1]);
        load_a_fragments(next_pixels, 1);

        // epilogue
        if (!pixels.is_inside) continue;
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (pixels.q + 8 * PIXEL_PARITIES * half >= (int)p.out_w) continue;
            #pragma unroll
            for (int v = 0; v < TILE_N / 4; v += VEC_WIDTH) {
                const int channel = first_channel + v / 8 * 32 + 8 * j + v % 8;
                const OutputCoord out = output_coord(p, pixels.n, channel, pixels.row, pixels.q + 8 * PIXEL_PARITIES * half);
                if (channel >= (int)p.channels_out) continue;
                Accum acc[VEC_WIDTH];
                #pragma unroll
                for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = (Accum)accum[(v + e) / 2 * 4 + 2 * half + (v + e) % 2];
                epilogue(p, out.coord, operands[v / VEC_WIDTH], acc);
            }
        }
    }
}
