// Forward convolution of an image of few channels on the tensor cores of compute capability 9.0: windows as in
// direct_stem.cu. A warpgroup multiplies 64 pixels by BN channels at once, pixels out of registers, filters out of shared
// memory. A warp's 16 pixels are neighbours; the four warps take whatever pixels follow each other in the tile.
//
// Rows of tiles arrive ahead in a ring. BULK: the first warp asks the copy unit for all rows of a tile, which puts zeros
// around them, when it is done with the tile after the one whose place they take; else the last 128 threads copy.
// Warpgroups take turns with 64 pixels each, from one tile to the next. Operands are two parts in registers: while the
// products of one part run, the other is read, for the next pixels at the end.
//
// Filters lie as [16 bytes of the sum][channel], swizzled; channels are dealt to the columns of the products such that a lane
// ends with 8 neighbouring channels of every 32 of its pixel: four lanes store whole sectors.

constexpr int STEPS = (SLICES + 1) / 2;           // of 16 numbers of the sum
constexpr int PANELS = (SLICES + 7) / 8;          // of 64 numbers
constexpr int FILTER_BYTES = PANELS * BN * SWIZZLE_BYTES;   // for one place of a window's beginning
constexpr int PARTS = (STEPS + 11) / 12 * 2;      // of the operands, an even number
constexpr int PART = (STEPS + PARTS - 1) / PARTS; // steps
constexpr int CONSUMERS = THREADS - (BULK ? 0 : 128);  // threads
constexpr int SMEM_FILTER_BYTES = (BN * FILTER_SIZE * (int)sizeof(Filter) + 15) / 16 * 16;
static_assert(sizeof(Element) == 2 && CONSUMERS % 128 == 0 && BN % 32 == 0, "warpgroups, and whole accesses");

template <int COUNT> __device__ __forceinline__ void fence_accumulators(unsigned int (&x)[COUNT][4]) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(x[i][j])::"memory");
#endif
}

// What threads wrote to shared memory is seen by the tensor cores.
__device__ __forceinline__ void publish_filters() {
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// A block's tiles, in turn: row number `row` of tiles of the result's slice n.
struct Tile {
    int tile, n, row;
    __device__ __forceinline__ Tile(const Params& p, unsigned int tile) : tile((int)tile) {
        n = (int)(tile / (unsigned int)p.row_tiles), row = (int)tile - n * (int)p.row_tiles;
    }
    // `by`: how far it is from a block's tile to the next.
    __device__ __forceinline__ void advance(const Params& p, const Tile& by) {
        tile += by.tile, n += by.n, row += by.row;
        if (row >= (int)p.row_tiles) row -= (int)p.row_tiles, ++n;
    }
};

// 64 pixels: this lane's first one.
struct Pixels {
    const Element* from;
    int n, row, q, odd;
    bool is_there;
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_stem(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Element* const rows = (Element*)(memory + APART * FILTER_BYTES);
    Filter* const slab = (Filter*)(rows + STAGES * STAGE);
    const smem_addr_t full = smem_addr(slab) + SMEM_FILTER_BYTES, left = full + 8 * STAGES;  // a barrier for each stage
    const int lane = (int)threadIdx.x % 32, g = lane / 4, j = lane % 4;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const bool copies = warp >= CONSUMERS / 32;
    const int block_channel = (int)blockIdx.y * BN, tiles = (int)p.tiles;
    const Tile step(p, gridDim.x);
    Tile now(p, blockIdx.x), coming = now;  // and the next one that is copied
    PipelineState<STAGES> pipe, filled;              // of these

    const auto bring = [&](const auto& p) {  // generic: only some have a map
        if constexpr (BULK) {
            if (lane == 0) {
                mbarrier_expect_tx(full + 8 * filled.stage, STAGE * (int)sizeof(Element));
                const smem_addr_t to = smem_addr(rows + filled.stage * STAGE), barrier = full + 8 * filled.stage;
                const int before = -(BEFORE * (int)sizeof(Element) / 8), h = coming.row * (TP * STRIDE_H) - (int)p.pad_h;
                const Slice out = slice_of(p, coming.n);
                if constexpr (SPATIAL == 3)
                    tma_load_tile(to, p.image[0], barrier, before, h, out.d * (int)p.stride_d - (int)p.pad_d, out.n);
                else tma_load_tile(to, p.image[0], barrier, before, h, out.n);
            }
        } else {
            fetch<128>(p, rows + filled.stage * STAGE, coming.tile, (int)threadIdx.x - CONSUMERS);
            commit_copies();
            await_copies<0>();
            mbarrier_arrive(full + 8 * filled.stage);
        }
        filled.advance();
        coming.advance(p, step);
    };
    if (!copies) copy_filters<BN, CONSUMERS>(p, slab, block_channel);
    commit_copies();
    ColumnOperands kept[BN / 4 / WIDTH];  // what the epilogue reads for a lane's channels
    #pragma unroll
    for (int v = 0; v < BN / 4; v += WIDTH) {
        const int channel = block_channel + v / 8 * 32 + 8 * j + v % 8;
        load_column_operands(p, place_of(p, 0, channel < (int)p.channels_out ? channel : 0, 0, 0).at, kept[v / WIDTH]);
    }
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + 8 * stage, BULK ? 1 : 128);
            mbarrier_init(left + 8 * stage, CONSUMERS / 32);
        }
        fence_barrier_init();
    }
    if constexpr (BULK) {
        if (warp == 0) {
            __syncwarp();  // the barriers are there
            while (filled.phase == 0 && coming.tile < tiles) bring(p);
        }
    } else {
        clear_margins(p, rows);
    }
    await_copies<0>();
    __syncthreads();
    if (!copies) {
        for (int i = threadIdx.x; i < APART * PANELS * 8 * BN; i += CONSUMERS) {  // a slice of one channel each
            const int column = i % BN, slice = i / BN % (PANELS * 8), odd = i / BN / (PANELS * 8);
            const int channel = column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
            const int r = slice / (DEPTH / 8), first = slice % (DEPTH / 8) * 8 - (odd ? 1 - LEAD : LEAD);
            Vec<Element, 8> pack;
            #pragma unroll
            for (int e = 0; e < 8; ++e) pack.data[e].bits = weight_at(p, slab, channel, r, first + e);
            store_vec<8>((Element*)(memory + odd * FILTER_BYTES + slice / 8 * (BN * SWIZZLE_BYTES) + column * SWIZZLE_BYTES +
                                     ((slice % 8 ^ column % 8) << 4)), pack);
        }
        publish_filters();
    }
    __syncthreads();

    if (copies) {
        #pragma unroll 1
        while (coming.tile < tiles) {
            mbarrier_wait_parity(left + 8 * filled.stage, filled.phase ^ 1);
            bring(p);
        }
        return;
    }

    const int groups = TP * (int)p.column_tiles, units = (groups + 3) / 4 * APART;
    const unsigned int inverse = 0xffffffffu / (unsigned int)p.column_tiles + 1u;  // 0 for one
    int unit = warp / 4;
    const auto settle = [&] {  // in the tile that has this unit; false behind the last one
        while (unit >= units) {
            unit -= units;
            __syncwarp();
            if (lane == 0) mbarrier_arrive(left + 8 * pipe.stage);
            if (BULK && warp == 0 && now.tile != (int)blockIdx.x && coming.tile < tiles) {
                mbarrier_wait_parity(left + 8 * filled.stage, filled.phase ^ 1);
                bring(p);
            }
            pipe.advance();
            now.advance(p, step);
            if (now.tile >= tiles) return false;
            mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
        }
        return true;
    };
    const auto place = [&] {
        Pixels at;
        at.odd = unit % APART;
        const int wanted = unit / APART * 4 + warp % 4, group = wanted < groups ? wanted : groups - 1;
        const int row = inverse ? (int)((unsigned long long)group * inverse >> 32) : group;
        at.q = ((group - row * (int)p.column_tiles) * 16 + g) * APART + at.odd;
        at.from = rows + pipe.stage * STAGE + row * STRIDE_H * PITCH + (int)p.window + (at.odd ? 2 * LEAD - 1 : 0) +
                  at.q * (STRIDE_W * C) + 2 * j;
        at.n = now.n;
        at.row = now.row * TP + row;
        at.is_there = wanted < groups && at.row < (int)p.out_h;
        return at;
    };
    unsigned int a[2][PART][4];
    const auto read = [&](const Pixels& at, int part) {
        const int lead = at.odd ? 1 - LEAD : LEAD;
        // What a lane keeps of the first and of the last pair of a window.
        const unsigned int keep_first = lead && j == 0 ? 0xffff0000u : 0xffffffffu;
        const int behind = DEPTH - 8 + 2 * j - lead;
        const unsigned int keep_last = (behind < WINDOW ? 0xffffu : 0u) | (behind + 1 < WINDOW ? 0xffff0000u : 0u);
        #pragma unroll
        for (int i = 0; i < 2 * PART; ++i) {
            const int slice = 2 * PART * part + i, r = slice / (DEPTH / 8), begin = slice % (DEPTH / 8);
            unsigned int upper = 0, lower = 0;
            if (slice < SLICES) {
                const Element* const here = at.from + row_at(r) + begin * 8;
                upper = pair_at(here), lower = pair_at(here + 8 * NEXT);
                if (HAS_LEAD && begin == 0) upper &= keep_first, lower &= keep_first;
                if ((DEPTH != WINDOW + LEAD || APART == 2) && begin == DEPTH / 8 - 1) upper &= keep_last, lower &= keep_last;
            }
            a[part % 2][i / 2][i % 2 * 2] = upper;
            a[part % 2][i / 2][i % 2 * 2 + 1] = lower;
        }
    };
    float sum[BN / 2];
    const auto multiply = [&](const Pixels& at, int part) {
        const smem_desc_t filters = make_desc<false>(smem_addr(memory) + at.odd * FILTER_BYTES);
        fence_accumulators(a[part % 2]);
        wgmma_fence();
        #pragma unroll
        for (int i = 0; i < PART; ++i) {
            const int k = PART * part + i;
            if (k < STEPS)
                wgmma_rs(sum, a[part % 2][i], filters + (k / 4 * (BN * SWIZZLE_BYTES) >> 4) + k % 4 * DESC_STEP_K<false>, k > 0);
        }
        wgmma_commit();
    };

    mbarrier_wait_parity(full + 8 * pipe.stage, pipe.phase);
    bool is_more = settle();
    if (!is_more) return;
    Pixels next = place();
    read(next, 0);
    read(next, 1);
    #pragma unroll 1
    while (is_more) {
        const Pixels at = next;
        #pragma unroll
        for (int i = 0; i < BN / 2; ++i) sum[i] = 0;
        fence_accumulators(sum);
        multiply(at, 0);
        multiply(at, 1);
        #pragma unroll
        for (int part = 2; part < PARTS; ++part) {
            wgmma_wait<1>();
            fence_accumulators(a[part % 2]);
            read(at, part);
            multiply(at, part);
        }
        unit += CONSUMERS / 128;
        is_more = settle();
        if (is_more) next = place();
        wgmma_wait<1>();
        fence_accumulators(a[0]);
        read(next, 0);
        wgmma_wait<0>();
        fence_accumulators(sum);
        fence_accumulators(a[1]);
        read(next, 1);
        if (!at.is_there) continue;
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (at.q + 8 * APART * half >= (int)p.out_w) continue;
            #pragma unroll
            for (int v = 0; v < BN / 4; v += WIDTH) {
                const int channel = block_channel + v / 8 * 32 + 8 * j + v % 8;
                const Place out = place_of(p, at.n, channel, at.row, at.q + 8 * APART * half);
                if (channel >= (int)p.channels_out) continue;
                Accum acc[WIDTH];
                #pragma unroll
                for (int e = 0; e < WIDTH; ++e) acc[e] = (Accum)sum[(v + e) / 2 * 4 + 2 * half + (v + e) % 2];
                epilogue(p, out.at, kept[v / WIDTH], acc);
            }
        }
    }
}
