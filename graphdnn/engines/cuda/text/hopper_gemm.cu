// Convolutions as matrix products on the tensor cores of compute capability 9.0.
//
// A block has one warpgroup that copies and CONSUMERS that multiply. A thread of the first fills a ring of STAGES: BM rows of
// a (along k, or across it) and BN columns of b, 128 bytes of k deep, moved by the copy unit, which also finds the pixels
// of a tap and the zeros around the image. The others multiply from shared memory into registers, MI x 64 rows each, and
// pass the sums through the epilogue while the ring fills for the block's next tile.
//
//                 rows        columns          k
//   forward-like  pixel       channel          taps, channels     a: pixels, along k   b: filter, along k or across
//   wgrad         channel     taps, channels   pixels             a, b: pixels, across k
//
// A thread stores neighbouring channels. Tensor cores leave it two columns of each eight, so either the filter's rows lie
// permuted in shared memory (PERMUTED: the copy takes them in another order), or the four lanes of a row exchange sums.
//
// A strided dgrad is a product for each residue of the positions modulo the stride, all in one launch.

[[maybe_unused]] constexpr int BK = ROW / (int)sizeof(Element);
constexpr int PANEL = 64;  // rows of a panel
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int MI = BM / (64 * CONSUMERS), SUMS = BN / 2;
constexpr int A_BYTES = BM * ROW, B_BYTES = BN * ROW, RING_BYTES = STAGES * (A_BYTES + B_BYTES);
static_assert(BM % (64 * CONSUMERS) == 0 && BN % 32 == 0 && (!ACROSS_B || BN % PANEL == 0), "whole panels");

// A block's piece of work.
struct Work {
    int residue, group, tile_m, tile_n, tile;
    int first, last;  // steps of k
};

__device__ __forceinline__ Work work_of(const Params& p, int number) {
    Work w;
    const int tiles = (int)p.tiles, part = number / tiles;
    w.tile = number - part * tiles;
    w.residue = 0;
    #pragma unroll
    for (int i = 1; i < RESIDUES; ++i)
        if (w.tile >= (int)p.first_tile[i]) w.residue = i;
    int rest = w.tile - (int)p.first_tile[w.residue];
    const int across = (int)p.tiles_n, down = (int)p.tiles_m[w.residue];
    w.tile_n = rest % across;
    rest /= across;
    w.tile_m = rest % down;
    w.group = rest / down;
    const int depth = (int)p.depth[w.residue], parts = SPLIT ? (int)p.parts : 1;
    w.first = (int)((long long)depth * part / parts);
    w.last = (int)((long long)depth * (part + 1) / parts);
    return w;
}

// Number of a pixel -> where it is: spatial coordinates outermost first, and n.
struct Pixel { int at[3], n; };

__device__ __forceinline__ Pixel pixel_of(const Params& p, int residue, int number) {
    Pixel found;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        const int size = (int)p.pixels[residue * 3 + d];
        found.at[d] = d < 3 - SPATIAL ? 0 : number % size;
        if (d >= 3 - SPATIAL) number /= size;
    }
    found.n = number;
    return found;
}

// A tap by its number, the last axis fastest.
struct Tap { int at[3]; };

__device__ __forceinline__ Tap tap_of(const Params& p, int residue, int number) {
    Tap found;
    #pragma unroll
    for (int d = 2; d >= 0; --d) {
        const int size = (int)p.taps[residue * 3 + d];
        found.at[d] = d < 3 - SPATIAL ? 0 : number % size;
        if (d >= 3 - SPATIAL) number /= size;
    }
    return found;
}

__device__ __forceinline__ void next_tap(const Params& p, int residue, Tap& tap) {
    #pragma unroll
    for (int d = 2; d >= 3 - SPATIAL; --d) {
        if (++tap.at[d] < (int)p.taps[residue * 3 + d]) return;
        tap.at[d] = 0;
    }
}

// How far a tap shifts the walk through the gathered image.
__device__ __forceinline__ void offset_of(const Params& p, int residue, const Tap& tap, int (&offset)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        offset[d] = d < 3 - SPATIAL ? 0 : (int)p.tap_origin[residue * 3 + d] + tap.at[d] * (int)p.tap_step[d];
}

__device__ __forceinline__ void gathered_start(const Params& p, int residue, const Pixel& pixel, int (&start)[3]) {
    #pragma unroll
    for (int d = 0; d < 3; ++d)
        start[d] = d < 3 - SPATIAL ? 0 : pixel.at[d] * (int)p.pixel_step[d] + (int)p.lowest[residue * 3 + d];
}

// The stages of one piece of work, in order: `slot(a, b, barrier)` waits for a free one.
template <class Slot> __device__ __forceinline__ void fill_forward(const Params& p, const Work& w, Slot slot) {
    const int blocks = (int)p.channel_blocks, channels = (int)p.channels;
    int start[3], offset[3];
    const Pixel pixel = pixel_of(p, w.residue, w.tile_m * BM);
    gathered_start(p, w.residue, pixel, start);
    Tap tap = tap_of(p, w.residue, w.first / blocks);
    int block = w.first % blocks;
    const int column = w.tile_n * BN;
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        shared_t a, b, barrier;
        slot(a, b, barrier);
        offset_of(p, w.residue, tap, offset);
        int in_filter = (int)p.filter_start[w.residue];
        #pragma unroll
        for (int d = 3 - SPATIAL; d < 3; ++d) in_filter += tap.at[d] * (int)p.filter_step[d];
        copy_pixels<SPATIAL>(a, p.gathered[w.residue], barrier, w.group * channels + block * BK, pixel.n, start, offset);
        if constexpr (ACROSS_B) {
            #pragma unroll
            for (int j = 0; j < BN / PANEL; ++j)
                copy_box(
                    b + j * PANEL_BYTES, p.plain[0], barrier, column + j * PANEL, in_filter, w.group * channels + block * BK
                );
        } else {
            const int row = w.group * (int)p.columns + column;
            if constexpr (PERMUTED)
                copy_box(b, p.plain[0], barrier, in_filter * (int)p.tap_pitch + block * BK, 0, 0, 0, row / 32);
            else copy_box(b, p.plain[0], barrier, block * BK, in_filter, row);
        }
        if (++block == blocks) block = 0, next_tap(p, w.residue, tap);
    }
}

template <class Slot> __device__ __forceinline__ void fill_wgrad(const Params& p, const Work& w, Slot slot) {
    constexpr int UNITS = BN / PANEL;  // each has its own tap and block of channels
    int channel[UNITS], offset[UNITS][3];
    #pragma unroll
    for (int j = 0; j < UNITS; ++j) {
        const int unit = w.tile_n * UNITS + j, number = unit / (int)p.channel_blocks;
        offset_of(p, 0, tap_of(p, 0, number), offset[j]);
        channel[j] = w.group * (int)p.channels + (unit - number * (int)p.channel_blocks) * PANEL;
        if (unit >= (int)p.units) {  // beyond the last: any that is there, nobody reads the sums
            channel[j] = 0;
            #pragma unroll
            for (int d = 0; d < 3; ++d) offset[j][d] = 0;
        }
    }
    const int none[3] = {0, 0, 0}, row = w.group * (int)p.rows[0] + w.tile_m * BM;
    #pragma unroll 1
    for (int step = w.first; step < w.last; ++step) {
        shared_t a, b, barrier;
        slot(a, b, barrier);
        const Pixel pixel = pixel_of(p, 0, step * PANEL);
        int start[3];
        gathered_start(p, 0, pixel, start);
        #pragma unroll
        for (int j = 0; j < BM / PANEL; ++j)
            copy_pixels<SPATIAL>(a + j * PANEL_BYTES, p.plain[0], barrier, row + j * PANEL, pixel.n, pixel.at, none);
        #pragma unroll
        for (int j = 0; j < UNITS; ++j)
            copy_pixels<SPATIAL>(b + j * PANEL_BYTES, p.gathered[0], barrier, channel[j], pixel.n, start, offset[j]);
    }
}

// Lane 4g + q of a warp holds, of row g, columns 2q and 2q + 1 of four groups of eight: `v[2 * group + i]`. Afterwards
// it holds columns 8q to 8q + 7 of the 32.
__device__ __forceinline__ void gather_neighbours(Accumulator (&v)[8]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    #pragma unroll
    for (int group = 0; group < 4; group += 2)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accumulator &even_one = v[2 * group + i], &odd_one = v[2 * group + 2 + i];
            const Accumulator other = __shfl_xor_sync(0xffffffffu, odd ? even_one : odd_one, 1);
            if (odd) even_one = other; else odd_one = other;
        }
    #pragma unroll
    for (int group = 0; group < 2; ++group)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            Accumulator &low_one = v[2 * group + i], &high_one = v[2 * group + 4 + i];
            const Accumulator other = __shfl_xor_sync(0xffffffffu, high ? low_one : high_one, 2);
            if (high) low_one = other; else high_one = other;
        }
}

// Rows of the result that a thread holds of each 64: two. Where they are, and whether they are there at all; those that
// are not read what the last one reads, and store nothing.
struct Rows { int at[2][6]; bool is_inside[2]; };

__device__ __forceinline__ Rows rows_of(const Params& p, const Work& w, int consumer, int j) {
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32, all = (int)p.rows[w.residue];
    Rows found;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int place = w.tile_m * BM + (consumer * MI + j) * 64 + warp * 16 + lane / 4 + 8 * h;
        found.is_inside[h] = place < all;
        const int row = place < all ? place : all - 1;
        #pragma unroll
        for (int d = 0; d < 6; ++d) found.at[h][d] = 0;
        if constexpr (WGRAD) {
            found.at[h][0] = w.group;
            found.at[h][1] = row;
        } else {
            const Pixel pixel = pixel_of(p, w.residue, row);
            found.at[h][0] = pixel.n;
            found.at[h][1] = w.group;
            #pragma unroll
            for (int d = 0; d < 3; ++d)
                found.at[h][3 + d] = (int)p.first_pixel[w.residue * 3 + d] + pixel.at[d] * (int)p.pixel_pitch[d];
        }
    }
    return found;
}

// 32 columns of a thread's two rows through the epilogue.
__device__ __forceinline__ void leave(const Params& p, const Work& w, Rows& rows, int block, const Accumulator (&sum)[16]) {
    const int column = w.tile_n * BN + block * 32 + (int)threadIdx.x % 4 * 8;
    int channel = column, limit = (int)p.columns;
    if constexpr (WGRAD) {
        const int unit = column / PANEL, number = unit / (int)p.channel_blocks;
        const Tap tap = tap_of(p, 0, unit < (int)p.units ? number : 0);
        channel = (unit - number * (int)p.channel_blocks) * PANEL + column % PANEL;
        limit = unit < (int)p.units ? (int)p.channels : 0;
        #pragma unroll
        for (int h = 0; h < 2; ++h)
            #pragma unroll
            for (int d = 0; d < 3; ++d) rows.at[h][3 + d] = tap.at[d];
    }
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        Accumulator v[8];
        #pragma unroll
        for (int group = 0; group < 4; ++group)
            #pragma unroll
            for (int i = 0; i < 2; ++i) v[2 * group + i] = sum[4 * group + 2 * h + i];
        if constexpr (!PERMUTED) gather_neighbours(v);
        #pragma unroll
        for (int first = 0; first < 8; first += WIDTH) {
            const bool is_there = channel + first < limit;
            rows.at[h][2] = is_there ? channel + first : 0;
            Accumulator acc[WIDTH];
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) acc[e] = v[first + e];
            epilogue(p, rows.at[h], acc, is_there && rows.is_inside[h]);
        }
    }
}

// Partial sums lie as threads hold them: [part][tile][consumer][j][block][quarter][thread] of four.
__device__ __forceinline__ long long partial_at(const Params& p, int part, int tile, int consumer, int j, int block) {
    const long long piece = ((long long)part * (int)p.tiles + tile) * CONSUMERS + consumer;
    return (((piece * MI + j) * (BN / 32) + block) * 4 * 128 + threadIdx.x % 128) * 4;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_gemm(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const shared_t ring_a = shared_address(memory), ring_b = ring_a + STAGES * A_BYTES;
    const shared_t full = ring_a + RING_BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    wait_for_launch_before();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int pieces = (int)p.tiles * (SPLIT ? (int)p.parts : 1);
    Turn<STAGES> turn;
    if (warpgroup == 0) {
        give_registers<COPYING_REGISTERS>();
        if (warp == 0 && is_elected()) {
            const auto slot = [&](shared_t& a, shared_t& b, shared_t& barrier) {
                await_phase(empty + 8 * turn.stage, turn.parity ^ 1);
                barrier = full + 8 * turn.stage;
                announce(barrier, A_BYTES + B_BYTES);
                a = ring_a + turn.stage * A_BYTES;
                b = ring_b + turn.stage * B_BYTES;
                turn.advance();
            };
            for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
                const Work w = work_of(p, number);
                if constexpr (WGRAD) fill_wgrad(p, w, slot);
                else fill_forward(p, w, slot);
            }
        }
    } else {
        take_registers<MULTIPLYING_REGISTERS>();
        const int consumer = warpgroup - 1;
        for (int number = blockIdx.x; number < pieces; number += gridDim.x) {
            const Work w = work_of(p, number);
            Accumulator sum[MI][SUMS];
            #pragma unroll
            for (int j = 0; j < MI; ++j)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) sum[j][i] = 0;
            int previous = -1;
            #pragma unroll UNROLL
            for (int step = w.first; step < w.last; ++step) {
                await_phase(full + 8 * turn.stage, turn.parity);
                const matrix_t a = matrix_at<ACROSS_A>(ring_a + turn.stage * A_BYTES + consumer * (MI * PANEL_BYTES));
                const matrix_t b = matrix_at<ACROSS_B>(ring_b + turn.stage * B_BYTES);
                #pragma unroll
                for (int j = 0; j < MI; ++j) pin(sum[j]);
                products_begin();
                #pragma unroll
                for (int k = 0; k < 4; ++k)
                    #pragma unroll
                    for (int j = 0; j < MI; ++j)
                        multiply(sum[j], a + j * (PANEL_BYTES >> 4) + k * NEXT_K<ACROSS_A>, b + k * NEXT_K<ACROSS_B>);
                products_end();
                await_products<1>();
                // The step before this one is done: its stage may be filled again.
                if (previous >= 0 && threadIdx.x % 128 == 0) arrive(empty + 8 * previous);
                previous = turn.stage;
                turn.advance();
            }
            await_products<0>();
            if (number + (int)gridDim.x >= pieces) let_next_start();
            #pragma unroll
            for (int j = 0; j < MI; ++j) pin(sum[j]);
            if (previous >= 0 && threadIdx.x % 128 == 0) arrive(empty + 8 * previous);
            if constexpr (SPLIT) {
                const int part = number / (int)p.tiles;
                #pragma unroll
                for (int j = 0; j < MI; ++j)
                    #pragma unroll
                    for (int block = 0; block < BN / 32; ++block) {
                        Accumulator* const to = p.partial + partial_at(p, part, w.tile, consumer, j, block);
                        #pragma unroll
                        for (int quarter = 0; quarter < 4; ++quarter) {
                            Pack<Accumulator, 4> pack;
                            #pragma unroll
                            for (int e = 0; e < 4; ++e) pack.at[e] = sum[j][block * 16 + 4 * quarter + e];
                            store_pack<4>(to + quarter * 512, pack);
                        }
                    }
            } else {
                #pragma unroll
                for (int j = 0; j < MI; ++j) {
                    Rows rows = rows_of(p, w, consumer, j);
                    #pragma unroll
                    for (int block = 0; block < BN / 32; ++block) {
                        Accumulator some[16];
                        #pragma unroll
                        for (int i = 0; i < 16; ++i) some[i] = sum[j][block * 16 + i];
                        leave(p, w, rows, block, some);
                    }
                }
            }
        }
    }
}
