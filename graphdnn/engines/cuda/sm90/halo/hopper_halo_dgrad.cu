// Strided data gradients on the tensor cores of compute capability 9.0: one copied piece of dy serves all residues of the
// positions modulo the stride.
//
//   rows: places in dy, in the order of a walk   columns: residues, TILE_N channels of each   k: channels of dy
//
// Position h of dx is residue h % stride at place h / stride. What a place's taps read lies some lines and pixels from it,
// the same for all places, and often the same for several residues: these are neighbouring columns of one product, a
// meeting. A stage has the pixels of 64 places for each line that taps reach, and those that a line's taps reach behind
// them; a tap reads them `SHIFT` rows further on, for swizzled rows are found by their address alone. The walk goes beyond
// the end of a line, so that nothing of the next one is read there, and what such places come to is for nobody.
//
// The filters of a block's columns stay in shared memory, those of a meeting side by side.

// The place of a product's row; of what is beyond the last, the first.
struct Place { int n, h, w; bool is_there; };

__device__ __forceinline__ Place place_of(const Params& p, int number) {
    Place found;
    found.is_there = number < (int)p.places;
    if (!found.is_there) number = 0;
    found.w = divmod_inplace(number, (int)p.walked[1]);
    found.h = divmod_inplace(number, (int)p.walked[0]);
    found.n = number;
    return found;
}

__device__ __forceinline__ RowCoords rows_of_residue(const Params& p, const Place (&places)[2], int residue) {
    RowCoords found;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const Place& at = places[i];
        const bool is_inside = at.is_there && at.h < (int)p.pixels[residue * 3 + 1] && at.w < (int)p.pixels[residue * 3 + 2];
        found.is_inside[i] = is_inside;
        found.at[i][0] = at.n;
        found.at[i][1] = found.at[i][2] = found.at[i][3] = 0;
        found.at[i][4] = is_inside ? (int)p.out_start[residue * 3 + 1] + at.h * (int)p.out_stride[1] : 0;
        found.at[i][5] = is_inside ? (int)p.out_start[residue * 3 + 2] + at.w * (int)p.out_stride[2] : 0;
    }
    return found;
}

// Consumers multiply one after the other, in the order of their pieces: side by side they would come to their ends together,
// and the tensor cores would wait while all results leave. A named barrier for each.
__device__ __forceinline__ void await_turn([[maybe_unused]] int consumer) {
#ifdef __CUDA_ARCH__
    asm volatile("bar.sync %0, 256;" ::"r"(2 + consumer) : "memory");
#endif
}
__device__ __forceinline__ void hand_on_to([[maybe_unused]] int consumer) {
#ifdef __CUDA_ARCH__
    asm volatile("bar.arrive %0, 256;" ::"r"(2 + consumer) : "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_halo_dgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const int blocks = (int)p.channel_blocks, across = (int)p.tiles_n;
    const smem_addr_t rings = smem_addr(memory), filters = rings + CONSUMER_WARPGROUPS * STAGES * STAGE_BYTES;
    const smem_addr_t full = filters + blocks * TAPS * FILTER_BYTES, empty = full + 8 * CONSUMER_WARPGROUPS * STAGES;
    const smem_addr_t landed = empty + 8 * CONSUMER_WARPGROUPS * STAGES;  // a barrier for the filters of each block of channels
    if (threadIdx.x == 0) {
        init_pipeline<CONSUMER_WARPGROUPS * STAGES>(full, empty, RELEASES);
        for (int i = 0; i < blocks; ++i) mbarrier_init(landed + 8 * i, 1);
        fence_barrier_init();
        prefetch_tensormap(p.im2col_map[0]);
        prefetch_tensormap(p.dense_map[0]);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int pieces = ((int)p.places + 63) / 64, column = (int)blockIdx.x % across * TILE_N;
    const int consumer = warpgroup == 0 ? warp : warpgroup - 1;
    const int pace = (int)gridDim.x / across, first = (int)blockIdx.x / across + consumer * pace;
    const Ring ring{
        rings + consumer * (STAGES * STAGE_BYTES), full + 8 * STAGES * consumer, empty + 8 * STAGES * consumer,
        memory + consumer * (STAGES * STAGE_BYTES)
    };
    PipelineState<STAGES> pipe;
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        pdl_wait();
        if (warp == CONSUMER_WARPGROUPS && elect_one()) {
            #pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                mbarrier_expect_tx(landed + 8 * block, TAPS * FILTER_BYTES);
                #pragma unroll
                for (int i = 0; i < TAPS; ++i) {
                    const smem_addr_t to = filters + (block * TAPS + i) * FILTER_BYTES;
                    if constexpr (FILTER_MN_MAJOR) {
                        tma_load_tile(to, p.dense_map[0], landed + 8 * block, column, NUMBER_OF_TAP[i], block * TILE_K);
                    } else if constexpr (PERMUTE_N) {
                        const int in_row = NUMBER_OF_TAP[i] * (int)p.tap_stride + block * TILE_K;
                        tma_load_tile(to, p.dense_map[0], landed + 8 * block, in_row, 0, 0, 0, column / (4 * VEC_N));
                    } else tma_load_tile(to, p.dense_map[0], landed + 8 * block, block * TILE_K, NUMBER_OF_TAP[i], column);
                }
            }
        }
        if (warp < CONSUMER_WARPGROUPS && elect_one()) {  // a warp for each consumer
            #pragma unroll 1
            for (int piece = first; piece < pieces; piece += CONSUMER_WARPGROUPS * pace) {
                const Place from = place_of(p, piece * 64);
                const int start[3] = {0, from.h + (int)p.corner[0], from.w + (int)p.corner[1]};
                #pragma unroll 1
                for (int block = 0; block < blocks; ++block) {
                    #pragma unroll
                    for (int i = 0; i < COPIES; ++i) {
                        const smem_addr_t barrier = ring.full + 8 * pipe.stage;
                        const int offset[3] = {0, LINE_OF_COPY[i], PIXEL_OF_COPY[i]};
                        mbarrier_wait_parity(ring.empty + 8 * pipe.stage, pipe.phase ^ 1);
                        mbarrier_expect_tx(barrier, LANDING);
                        tma_load_im2col<2>(
                            ring.stages + pipe.stage * STAGE_BYTES, p.im2col_map[0], barrier, block * TILE_K, from.n, start, offset
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
        w.tile_n = column / TILE_N;
        Accum sum[RESIDUES][ACCUMS];
        #pragma unroll
        for (int j = 0; j < RESIDUES; ++j)
            #pragma unroll
            for (int i = 0; i < ACCUMS; ++i) sum[j][i] = 0;  // of a residue that no tap reaches: for good
        #pragma unroll 1
        for (int piece = first; piece < pieces; piece += CONSUMER_WARPGROUPS * pace) {
            int previous = -1;
            if (TURNS && piece != (int)blockIdx.x / across) await_turn(consumer);
            #pragma unroll 1
            for (int block = 0; block < blocks; ++block) {
                mbarrier_wait_parity(landed + 8 * block, 0);
                const smem_addr_t of_block = filters + block * TAPS * FILTER_BYTES;
                multiply_block(sum, ring, pipe, previous, of_block, block);
            }
            if (TURNS && piece + pace < pieces) hand_on_to(consumer + 1 == CONSUMER_WARPGROUPS ? 0 : consumer + 1);
            wgmma_wait<0>();
            if (piece + CONSUMER_WARPGROUPS * pace >= pieces) pdl_trigger();
            #pragma unroll
            for (int j = 0; j < RESIDUES; ++j) fence_accumulators(sum[j]);
            free_last(ring, previous);
            const int row = piece * 64 + warp * 16 + lane / 4;
            const Place places[2] = {place_of(p, row), place_of(p, row + 8)};
            #pragma unroll
            for (int j = 0; j < RESIDUES; ++j) {
                const RowCoords rows = rows_of_residue(p, places, j);
                if constexpr (IS_ROUNDED) leave_rounded<Leaving, TILE_N / 32>(p, w, rows, sum[j]);
                else epilogue_store<TILE_N / 32>(p, w, rows, 0, sum[j]);
            }
        }
    }
}
