// Convolution with groups of 8 to 64 channels on tensor cores (mma.sync), fprop and, for unit stride, dgrad.
//
// Tile:       a CTA owns the channels of GROUPS_PER_CTA groups and tiles of tile_h x tile_w pixels of tile_images images. The
//             tile of a warp is 16 * ROWS pixels of GROUPS_PER_WARP_TILE groups.
// MMA:        M is 16 pixels, N is 8 output channels, K is two chunks of 8 channels of one or two taps. A product never
//             mixes groups, so inf and NaN do not leak between groups.
// Pipeline:   filters stay in shared memory. cp.async loads the next halo tile during the MMAs (STAGES is 2).
// Epilogue:   accumulators pass through shared memory, so that stores are contiguous along the channels.
//
// Required constants (from the generator): R, S, STRIDE_H, STRIDE_W, DILATION_H, DILATION_W, DGRAD, FLIP: filter and
// direction. GROUP_IN, GROUP_OUT: channels of a group in the image operand and in the result. GROUPS_PER_CTA, ROWS,
// GROUPS_PER_WARP_TILE, STAGES, THREADS: see above. VEC_WIDTH: channels of an epilogue call. CTAS_PER_SM: CTAs that fit on an
// SM.

#include "pdl.cuh"
#include "direct_copy.cuh"
#include "ldmatrix.cuh"
#include "direct_mma.cuh"
#include "direct_grouped_halo.cuh"

constexpr int IN_CHUNKS = GROUP_IN / 8, OUT_CHUNKS = GROUP_OUT / 8, CHUNKS = R * S * IN_CHUNKS;
constexpr int K_PASSES = S * IN_CHUNKS % 2 == 0 ? R : 1;  // one row of taps in a pass, if it is whole K steps
constexpr int PASS_CHUNKS = CHUNKS / K_PASSES, MMA_STEPS = (PASS_CHUNKS + 1) / 2;
constexpr int PIXEL_CHUNKS = GROUPS_PER_CTA * IN_CHUNKS;               // chunks of 8 channels of a pixel
constexpr int PIXEL_PITCH = PIXEL_BYTES<PIXEL_CHUNKS>;
constexpr int FILTER_PITCH = (CHUNKS | 1) * 16;                // bytes of a row of filters
constexpr int FILTER_BYTES = GROUPS_PER_CTA * GROUP_OUT * FILTER_PITCH + 16; // an unused chunk is read after the last row
// Channels of a warp tile; several groups make stores longer.
constexpr int WARP_TILE_CHANNELS = GROUPS_PER_WARP_TILE * GROUP_OUT;
constexpr int EPILOGUE_PITCH = WARP_TILE_CHANNELS + (WARP_TILE_CHANNELS % 16 ? 0 : 8);
constexpr int EPILOGUE_FLOATS = 16 * EPILOGUE_PITCH;                  // floats of a warp's staging buffer
constexpr int WARP_TILE_VECS = WARP_TILE_CHANNELS / VEC_WIDTH;
constexpr int WARPS = THREADS / 32;
static_assert(PIXEL_CHUNKS <= 32 && GROUPS_PER_CTA % GROUPS_PER_WARP_TILE == 0 && sizeof(Element) == 2, "whole warp tiles of 16-bit floats");

// A pixel of the tile: its byte offset in the halo tile, and its image, row and column, ten bits each.
struct __align__(8) PixelSlot {
    int offset;
    unsigned int coord;
};

// Loads the filters, which lie in memory as [k][tap][c]. A row of shared memory has the filter of one output channel (fprop), or
// eight rows have the 8x8 matrices of eight output channels, one row for each k (dgrad). Chunks of a row are in the order of K.
__device__ __forceinline__ void load_filters(const Params& p, unsigned char* to, int group_block) {
    constexpr int INNER_CHUNKS = DGRAD ? OUT_CHUNKS : IN_CHUNKS, LINES = GROUPS_PER_CTA * (DGRAD ? GROUP_IN : GROUP_OUT), OUTER = DGRAD ? GROUP_IN : GROUP_OUT;
    const Element* const from = p.filter + (long long)group_block * (LINES * R * S * INNER_CHUNKS * 8);
    for (int i = (int)threadIdx.x; i < LINES * R * S * INNER_CHUNKS; i += THREADS) {
        const int k = i / (R * S * INNER_CHUNKS), rem = i - k * (R * S * INNER_CHUNKS), stored_tap = rem / INNER_CHUNKS, c = rem - stored_tap * INNER_CHUNKS;
        const int tap = FLIP ? R * S - 1 - stored_tap : stored_tap;
        const int group = k / OUTER, lane = k - group * OUTER;
        const int line = DGRAD ? (group * OUT_CHUNKS + c) * 8 + lane % 8 : k;
        const int chunk = tap * IN_CHUNKS + (DGRAD ? lane / 8 : c);
        cp_async_zfill<16>(to + line * FILTER_PITCH + chunk * 16, from + i * 8, true);
    }
}

__device__ __forceinline__ void load_halo_tile(const Params& p, unsigned char* to, const TileCoord& tile_origin, int group_block) {
    const Image image{p.image + group_block * (GROUPS_PER_CTA * GROUP_IN), p.image_n,  p.image_h, p.image_w,
                      (int)p.images,                     (int)p.in_h,   (int)p.in_w};
    const Box box{tile_origin.n, tile_origin.row * STRIDE_H + (int)p.in_row, tile_origin.column * STRIDE_W + (int)p.in_column,
                  (int)p.tile_images, (int)p.halo_h, (int)p.halo_w};
    load_lines<PIXEL_CHUNKS, STRIDE_W, WARPS>(image, box, (int)p.residue_columns, to);
}

// The MMAs of one pass. `a` and `b` are the offsets of its first chunks.
__device__ __forceinline__ void multiply(
    const unsigned char* halo_tile, const int (&a)[ROWS], const unsigned char* filters, int b, int last, int pitch, int residue_stride,
    float (&accum)[ROWS][OUT_CHUNKS][4]
) {
    const bool is_high = (int)threadIdx.x % 32 >= 16;
    #pragma unroll
    for (int step = 0; step < MMA_STEPS; ++step) {
        const auto chunk_offset = [&](int chunk) {
            const int column = chunk / IN_CHUNKS % S * DILATION_W;
            return column / STRIDE_W * PIXEL_PITCH + column % STRIDE_W * residue_stride + chunk % IN_CHUNKS * 16;
        };
        const int low = 2 * step, high = low + 1 < PASS_CHUNKS ? low + 1 : low;
        const int down_low = low / (S * IN_CHUNKS) * DILATION_H, down_high = high / (S * IN_CHUNKS) * DILATION_H;
        const int offset = is_high ? chunk_offset(high) + down_high * pitch : chunk_offset(low) + down_low * pitch;
        unsigned int x[ROWS][4];
        #pragma unroll
        for (int m = 0; m < ROWS; ++m) ldmatrix_x4<false>(x[m], halo_tile, a[m] + offset);
        #pragma unroll
        for (int j = 0; j < OUT_CHUNKS; j += 2) {
            unsigned int w[4];
            ldmatrix_x4<DGRAD>(w, filters, (j + 1 < OUT_CHUNKS ? b : last) + j * 8 * FILTER_PITCH + 2 * step * 16);
            #pragma unroll
            for (int m = 0; m < ROWS; ++m)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    if (j + half >= OUT_CHUNKS) continue;
                    if (low + 1 < PASS_CHUNKS)
                        mma_sync<Element, true>(
                            accum[m][j + half], x[m][0], x[m][1], x[m][2], x[m][3], w[2 * half], w[2 * half + 1]
                        );
                    else
                        mma_sync<Element, false>(accum[m][j + half], x[m][0], x[m][1], 0, 0, w[2 * half], 0);
                }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) direct_grouped(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    pdl_trigger();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const unsigned int group_blocks = (unsigned int)p.group_blocks;
    const int group_block = (int)(blockIdx.x % group_blocks);
    const int pixels = (int)p.tile_pixels, residue_stride = (int)p.residue_columns * PIXEL_PITCH, pitch = residue_stride * STRIDE_W;
    float* const epilogue_smem = (float*)(memory + FILTER_BYTES) + warp * EPILOGUE_FLOATS;
    PixelSlot* const pixel_slots = (PixelSlot*)(memory + FILTER_BYTES + WARPS * EPILOGUE_FLOATS * 4);
    const int halo_tiles = FILTER_BYTES + WARPS * EPILOGUE_FLOATS * 4 + (int)p.table_bytes;

    for (int i = (int)threadIdx.x; i < (int)p.table_bytes / 8; i += THREADS) {
        const int pixel = i < pixels ? i : pixels - 1, area = (int)p.tile_h * (int)p.tile_w;
        const int image = pixel / area, rem = pixel - image * area, h = rem / (int)p.tile_w, w = rem - h * (int)p.tile_w;
        const int line = image * (int)p.halo_h + h * STRIDE_H;
        pixel_slots[i] = {line * pitch + w * PIXEL_PITCH, i < pixels ? (unsigned int)(image << 20 | h << 10 | w) : ~0u};
    }
    pdl_wait();
    unsigned int tile = blockIdx.x / group_blocks;
    load_filters(p, memory, group_block);
    if (tile < (unsigned int)p.tiles) load_halo_tile(p, memory + halo_tiles, tile_coord(p, tile), group_block);
    cp_async_commit();

    int slot = 0;
    #pragma unroll 1
    for (; tile < (unsigned int)p.tiles; tile += (unsigned int)p.tile_step) {
        const unsigned int next = tile + (unsigned int)p.tile_step;
        if constexpr (STAGES > 1) {
            if (next < (unsigned int)p.tiles)
                load_halo_tile(p, memory + halo_tiles + (slot ^ 1) * (int)p.halo_bytes, tile_coord(p, next), group_block);
            cp_async_commit();
        }
        cp_async_wait<STAGES - 1>();
        __syncthreads();
        const TileCoord tile_origin = tile_coord(p, tile);
        const int halo_tile = halo_tiles + slot * (int)p.halo_bytes;
        const int warp_tiles = (pixels + 16 * ROWS - 1) / (16 * ROWS) * (GROUPS_PER_CTA / GROUPS_PER_WARP_TILE);
        #pragma unroll 1
        for (int warp_tile = warp; warp_tile < warp_tiles; warp_tile += WARPS) {
            const int block = warp_tile / (GROUPS_PER_CTA / GROUPS_PER_WARP_TILE), group = (warp_tile - block * (GROUPS_PER_CTA / GROUPS_PER_WARP_TILE)) * GROUPS_PER_WARP_TILE;
            const int first = block * (16 * ROWS);
            const int channel0 = (group_block * GROUPS_PER_CTA + group) * GROUP_OUT;
            ColumnOperands column_operands;
            if constexpr (32 % WARP_TILE_VECS == 0) {
                const int coord[4] = {tile_origin.n, channel0 + lane % WARP_TILE_VECS * VEC_WIDTH, tile_origin.row, tile_origin.column};
                load_column_operands(p, coord, column_operands);
            }
            int a[ROWS];
            #pragma unroll
            for (int m = 0; m < ROWS; ++m) a[m] = halo_tile + pixel_slots[first + m * 16 + lane % 16].offset + group * (GROUP_IN * 2);
            const int line = group * GROUP_OUT + lane % 8;
            int last = line * FILTER_PITCH + lane / 8 % 2 * 16, b = last + lane / 16 * 8 * FILTER_PITCH;
            float accum[GROUPS_PER_WARP_TILE][ROWS][OUT_CHUNKS][4];
            #pragma unroll
            for (int q = 0; q < GROUPS_PER_WARP_TILE; ++q)
                #pragma unroll
                for (int m = 0; m < ROWS; ++m)
                    #pragma unroll
                    for (int j = 0; j < OUT_CHUNKS; ++j)
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) accum[q][m][j][e] = 0.0f;
            #pragma unroll 1
            for (int k_pass = 0; k_pass < K_PASSES; ++k_pass) {
                #pragma unroll
                for (int q = 0; q < GROUPS_PER_WARP_TILE; ++q)
                    multiply(memory + q * (GROUP_IN * 2), a, memory + q * (GROUP_OUT * FILTER_PITCH), b, last, pitch, residue_stride, accum[q]);
                #pragma unroll
                for (int m = 0; m < ROWS; ++m) a[m] += DILATION_H * pitch;
                b += PASS_CHUNKS * 16, last += PASS_CHUNKS * 16;
            }

            #pragma unroll
            for (int m = 0; m < ROWS; ++m) {
                #pragma unroll
                for (int q = 0; q < GROUPS_PER_WARP_TILE; ++q)
                    #pragma unroll
                    for (int j = 0; j < OUT_CHUNKS; ++j)
                        #pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            Vec<float, 2> vec;
                            vec[0] = accum[q][m][j][2 * half];
                            vec[1] = accum[q][m][j][2 * half + 1];
                            float* const to = epilogue_smem + (half * 8 + lane / 4) * EPILOGUE_PITCH + q * GROUP_OUT + j * 8 + lane % 4 * 2;
                            *(Vec<float, 2>*)to = vec;
                        }
                __syncwarp();
                #pragma unroll
                for (int i = 0; i < (16 * WARP_TILE_VECS + 31) / 32; ++i) {
                    const int item = i * 32 + lane, row = item / WARP_TILE_VECS, column = item % WARP_TILE_VECS * VEC_WIDTH;
                    if (16 * WARP_TILE_VECS % 32 != 0 && row >= 16) continue;
                    const unsigned int packed_coord = pixel_slots[first + m * 16 + row].coord;
                    const int n = tile_origin.n + (int)(packed_coord >> 20), h = tile_origin.row + (int)(packed_coord >> 10 & 1023u);
                    const int w = tile_origin.column + (int)(packed_coord & 1023u);
                    if (packed_coord == ~0u || n >= (int)p.images || h >= (int)p.out_h || w >= (int)p.out_w) continue;
                    const int coord[4] = {n, channel0 + column, h, w};
                    if constexpr (32 % WARP_TILE_VECS != 0) load_column_operands(p, coord, column_operands);
                    const Vec<float, VEC_WIDTH> vec = load_vec<VEC_WIDTH>(epilogue_smem + row * EPILOGUE_PITCH + column);
                    float acc[VEC_WIDTH];
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH; ++e) acc[e] = vec.data[e];
                    epilogue(p, coord, column_operands, acc);
                }
                __syncwarp();
            }
        }
        __syncthreads();  // the halo tile is overwritten next
        if constexpr (STAGES > 1) {
            slot ^= 1;
        } else {
            if (next < (unsigned int)p.tiles) load_halo_tile(p, memory + halo_tiles, tile_coord(p, next), group_block);
            cp_async_commit();
        }
    }
    cp_async_wait<0>();
}
