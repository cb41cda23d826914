// Strided data gradient by wgmma for sm_90a: one load of dy serves all residues of the positions of dx modulo the stride.
//
//   dx[n, h, w, c] = sum over the taps (r, s) and k with h + pad_h - r * dilation_h = oh * stride_h, and likewise for w, of
//                    dy[n, oh, ow, k] * filter[k, r, s, c]
//
// Rows:       position h of dx has residue h % stride and coarse position h / stride. A row of the GEMM is a coarse pixel (h, w). The
//             traversal of coarse pixels continues beyond the end of an image row, so that the taps of a tile's pixels read no pixel of
//             the next row; results of such pixels are not stored.
// Tap groups: a tap reads dy at a fixed offset from the coarse pixel. Taps of several residues with the same offset are a tap group:
//             their products are neighbouring columns of one GEMM, which has the same A.
// Tile:       64 coarse pixels for each consumer warpgroup, by RESIDUES times TILE_N channels c. A K tile is a channel block of 128 bytes
//             of k, for all taps.
// Pipeline:   each consumer has STAGES stages of dy. A stage has the 64 pixels at the offset of one load, and the LOADED_PIXELS - 64 after
//             them that further taps of the same row of the filter read: a tap's A starts ROW_OFFSET_OF_GROUP rows later, since the swizzle
//             depends on the address alone. TMA bytes complete `full`, RELEASES arrivals complete `empty`. The filters of a CTA's columns
//             are loaded once; each channel block has a barrier in `filter_full`.
// Warp roles: warpgroup 0 produces: warp i loads dy for consumer i, and warp CONSUMER_WARPGROUPS loads the filters. The other warpgroups
//             issue wgmma with A in shared memory or in registers (halo_dgrad_ss.cuh, halo_dgrad_rs.cuh) and store.
// Order:      ORDERED_MAINLOOPS: consumers run their main loops one after another, by named barriers. Side by side they would finish
//             together, and the tensor cores would be idle during all epilogues.
// Layout:     halo_dgrad_smem.cuh.
// Epilogue:   for each residue, generated operations in registers, then direct stores; accumulators may be rounded to 16 bits first
//             (epilogue_16bit.cuh).
//
// Required constants (from the generator), besides those of conv_work_tile.cuh and epilogue_store.cuh:
//   STAGES                    stages of a consumer's pipeline
//   PRODUCER_REGS             registers of a producer thread
//   RESIDUES, TAPS            residues of dx, and taps of the filter
//   LOADS, LOADED_PIXELS      TMA loads of dy for a channel block, and pixels of each
//   ORDERED_MAINLOOPS         see above
//   EPILOGUE_16BIT            accumulators are rounded to type EpilogueInput, which has 16 bits, before the epilogue
//   arrays GROUP_OF_TAP, RESIDUE_OF_TAP, IS_FIRST_OF_RESIDUE, FILTER_TAP, one entry for each tap; LOAD_OF_GROUP and
//   ROW_OFFSET_OF_GROUP, one for each tap group; H_OF_LOAD and W_OF_LOAD, one for each load
//
// Variants (from the generator): A_IN_REGISTERS: 1: wgmma reads A from registers; 0: from shared memory.

#include "pdl.cuh"
#include "hopper_pipeline.cuh"
#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"
#include "epilogue_16bit.cuh"
#include "halo_dgrad_smem.cuh"
#if A_IN_REGISTERS
#include "halo_dgrad_rs.cuh"
#else
#include "halo_dgrad_ss.cuh"
#endif

// A coarse pixel. One beyond the last is replaced by pixel 0 and is not inside.
struct CoarsePixel { int n, h, w; bool is_inside; };

__device__ __forceinline__ CoarsePixel decode_coarse_pixel(const Params& p, int index) {
    CoarsePixel pixel;
    pixel.is_inside = index < (int)p.coarse_pixels;
    if (!pixel.is_inside) index = 0;
    pixel.w = divmod_inplace(index, (int)p.coarse_extents[1]);
    pixel.h = divmod_inplace(index, (int)p.coarse_extents[0]);
    pixel.n = index;
    return pixel;
}

__device__ __forceinline__ RowCoords residue_row_coords(const Params& p, const CoarsePixel (&pixels)[2], int residue) {
    RowCoords rows;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const CoarsePixel& pixel = pixels[i];
        const bool is_inside = pixel.is_inside && pixel.h < (int)p.pixels[residue * 3 + 1] && pixel.w < (int)p.pixels[residue * 3 + 2];
        rows.is_inside[i] = is_inside;
        rows.coord[i][0] = pixel.n;
        rows.coord[i][1] = rows.coord[i][2] = rows.coord[i][3] = 0;
        rows.coord[i][4] = is_inside ? (int)p.out_start[residue * 3 + 1] + pixel.h * (int)p.out_stride[1] : 0;
        rows.coord[i][5] = is_inside ? (int)p.out_start[residue * 3 + 2] + pixel.w * (int)p.out_stride[2] : 0;
    }
    return rows;
}

// ORDERED_MAINLOOPS: a named barrier for each consumer, on which it waits and the consumer before it arrives.
__device__ __forceinline__ void order_wait([[maybe_unused]] int consumer) {
#ifdef __CUDA_ARCH__
    asm volatile("bar.sync %0, 256;" ::"r"(2 + consumer) : "memory");
#endif
}
__device__ __forceinline__ void order_arrive([[maybe_unused]] int next_consumer) {
#ifdef __CUDA_ARCH__
    asm volatile("bar.arrive %0, 256;" ::"r"(2 + next_consumer) : "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo_dgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int channel_blocks = (int)p.channel_blocks, tiles_n = (int)p.tiles_n;
    const smem_addr_t stages = smem_addr(memory), filters = stages + CONSUMER_WARPGROUPS * STAGES * STAGE_BYTES;
    const smem_addr_t full = filters + channel_blocks * TAPS * FILTER_BYTES, empty = full + 8 * CONSUMER_WARPGROUPS * STAGES;
    const smem_addr_t filter_full = empty + 8 * CONSUMER_WARPGROUPS * STAGES;
    if (threadIdx.x == 0) {
        init_pipeline<CONSUMER_WARPGROUPS * STAGES>(full, empty, RELEASES);
        for (int i = 0; i < channel_blocks; ++i) mbarrier_init(filter_full + 8 * i, 1);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tiles_m = ((int)p.coarse_pixels + 63) / 64, first_channel = (int)blockIdx.x % tiles_n * TILE_N;
    const int consumer = warpgroup == 0 ? warp : warpgroup - 1;
    const int stride = (int)gridDim.x / tiles_n, first_tile_m = (int)blockIdx.x / tiles_n + consumer * stride;
    const ConsumerPipeline smem{
        stages + consumer * (STAGES * STAGE_BYTES), full + 8 * STAGES * consumer, empty + 8 * STAGES * consumer,
        memory + consumer * (STAGES * STAGE_BYTES)
    };
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        pdl_wait();
        // filter producer
        if (warp == CONSUMER_WARPGROUPS && elect_one()) {
            #pragma unroll 1
            for (int channel_block = 0; channel_block < channel_blocks; ++channel_block) {
                mbarrier_expect_tx(filter_full + 8 * channel_block, TAPS * FILTER_BYTES);
                #pragma unroll
                for (int i = 0; i < TAPS; ++i) {
                    const smem_addr_t to = filters + (channel_block * TAPS + i) * FILTER_BYTES;
                    if constexpr (FILTER_MN_MAJOR) {
                        tma_load_tile(to, p.dense_map[0], filter_full + 8 * channel_block, first_channel, FILTER_TAP[i], channel_block * TILE_K);
                    } else if constexpr (PERMUTE_N) {
                        const int offset = FILTER_TAP[i] * (int)p.tap_stride + channel_block * TILE_K;
                        tma_load_tile(to, p.dense_map[0], filter_full + 8 * channel_block, offset, 0, 0, 0, first_channel / (4 * VEC_N));
                    } else tma_load_tile(to, p.dense_map[0], filter_full + 8 * channel_block, channel_block * TILE_K, FILTER_TAP[i], first_channel);
                }
            }
        }
        // dy producer of consumer `warp`
        if (warp < CONSUMER_WARPGROUPS && elect_one()) {
            #pragma unroll 1
            for (int tile_m = first_tile_m; tile_m < tiles_m; tile_m += CONSUMER_WARPGROUPS * stride) {
                const CoarsePixel pixel = decode_coarse_pixel(p, tile_m * 64);
                const int start[3] = {0, pixel.h + (int)p.load_corner[0], pixel.w + (int)p.load_corner[1]};
                #pragma unroll 1
                for (int channel_block = 0; channel_block < channel_blocks; ++channel_block) {
                    #pragma unroll
                    for (int i = 0; i < LOADS; ++i) {
                        const smem_addr_t barrier = smem.full + 8 * pipe.stage;
                        const int offset[3] = {0, H_OF_LOAD[i], W_OF_LOAD[i]};
                        mbarrier_wait_parity(smem.empty + 8 * pipe.stage, pipe.phase ^ 1);
                        mbarrier_expect_tx(barrier, LOAD_BYTES);
                        tma_load_im2col<2>(
                            smem.stages + pipe.stage * STAGE_BYTES, p.im2col_map[0], barrier, channel_block * TILE_K, pixel.n, start, offset
                        );
                        pipe.advance();
                    }
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        pdl_wait();
        const int lane = (int)threadIdx.x % 32;
        WorkTile w{};
        w.tile_n = first_channel / TILE_N;
        Accum accum[RESIDUES][ACCUMS];
        #pragma unroll
        for (int j = 0; j < RESIDUES; ++j)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i) accum[j][i] = 0;  // a residue that no tap reaches keeps zeros
        #pragma unroll 1
        for (int tile_m = first_tile_m; tile_m < tiles_m; tile_m += CONSUMER_WARPGROUPS * stride) {
            // main loop
            int unreleased = -1;
            if (ORDERED_MAINLOOPS && tile_m != (int)blockIdx.x / tiles_n) order_wait(consumer);
            #pragma unroll 1
            for (int channel_block = 0; channel_block < channel_blocks; ++channel_block) {
                mbarrier_wait_parity(filter_full + 8 * channel_block, 0);
                const smem_addr_t block_filters = filters + channel_block * TAPS * FILTER_BYTES;
                multiply_channel_block(accum, smem, pipe, unreleased, block_filters, channel_block);
            }
            if (ORDERED_MAINLOOPS && tile_m + stride < tiles_m) order_arrive(consumer + 1 == CONSUMER_WARPGROUPS ? 0 : consumer + 1);

            // epilogue
            wgmma_wait<0>();
            if (tile_m + CONSUMER_WARPGROUPS * stride >= tiles_m) pdl_trigger();
            #pragma unroll
            for (int j = 0; j < RESIDUES; ++j) fence_accumulators(accum[j]);
            release_last_stage(smem, unreleased);
            const int row = tile_m * 64 + warp * 16 + lane / 4;
            const CoarsePixel pixels[2] = {decode_coarse_pixel(p, row), decode_coarse_pixel(p, row + 8)};
            #pragma unroll
            for (int j = 0; j < RESIDUES; ++j) {
                const RowCoords rows = residue_row_coords(p, pixels, j);
                if constexpr (EPILOGUE_16BIT) epilogue_store_16bit<EpilogueInput, TILE_N / 32>(p, w, rows, accum[j]);
                else epilogue_store<TILE_N / 32>(p, w, rows, 0, accum[j]);
            }
        }
    }
}
