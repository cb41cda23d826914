// Filter gradient of groups of 8 to 64 channels on tensor cores of warps.
//
// A product's rows are two chunks of 8 channels of x, each of one tap or of two, its columns 8 channels of dy of the same
// group, and its depth 16 pixels: nothing is multiplied with another group's channels. Both operands are turned as they
// are read. A block takes the channels of GROUPS groups and goes through tiles of dy, each with the patch of x under it,
// which arrive in shared memory while earlier ones are multiplied; its warps have a group each, SHARES of them its rows,
// TURNS of them its pixels. All sums of a block stay in registers. What blocks leave is added in their order by the second kernel.

constexpr int IN_CHUNKS = IN / 8, OUT_CHUNKS = OUT / 8, WINDOW = R * S * IN, CHUNKS = WINDOW / 8;
constexpr int OWN = ((CHUNKS + 1) / 2 + SHARES - 1) / SHARES;  // products side by side, of a warp
constexpr int WIDE = GROUPS * IN_CHUNKS, NARROW = GROUPS * OUT_CHUNKS;
constexpr int PIXEL = PIXEL_BYTES<WIDE>, RESULT = PIXEL_BYTES<NARROW>;
constexpr int WARPS = GROUPS * SHARES * TURNS, THREADS = 32 * WARPS;
constexpr int SUMS = OWN * OUT_CHUNKS * 4;
static_assert(WIDE <= 32 && NARROW <= 32 && sizeof(Element) == 2, "a warp copies whole pixels of 16-bit floats");
static_assert(STAGES >= 2, "a tile arrives while another one is multiplied");

__device__ __forceinline__ void fetch(const Params& p, unsigned char* to, unsigned int tile, int slab) {
    const Corner corner = corner_of(p, tile);
    const Image x{p.gathered + slab * (GROUPS * IN), p.gathered_n,  p.gathered_h, p.gathered_w,
                  (int)p.images,                     (int)p.in_h,   (int)p.in_w};
    const Cut patch{corner.n, corner.row * STRIDE_H + (int)p.in_row, corner.column * STRIDE_W + (int)p.in_column,
                    (int)p.tile_images, (int)p.patch_h, (int)p.patch_w};
    fetch_lines<WIDE, STRIDE_W, WARPS>(x, patch, (int)p.patch_apart, to);
    const Image dy{p.plain + slab * (GROUPS * OUT), p.plain_n,    p.plain_h, p.plain_w,
                   (int)p.images,                   (int)p.out_h, (int)p.out_w};
    const Cut results{corner.n, corner.row, corner.column, (int)p.tile_images, (int)p.tile_h, (int)p.tile_w};
    fetch_lines<NARROW, 1, WARPS>(dy, results, (int)p.tile_w, to + (int)p.patch_bytes);
}

// The part of a tile that the images have, and where its pixels lie.
struct Part {
    int columns, count, inverse;  // `inverse`: 2^16 / columns, rounded up, divides the pixels of a tile
    int high, between;            // lines of x between the images of a tile, beside those of the strides
};

__device__ __forceinline__ Part part_of(const Params& p, unsigned int tile) {
    const Corner corner = corner_of(p, tile);
    const auto least = [](int a, int b) { return a < b ? a : b; };
    const int columns = least((int)p.tile_w, (int)p.out_w - corner.column);
    const int rows = least((int)p.tile_h, (int)p.out_h - corner.row);
    const int images = least((int)p.tile_images, (int)p.images - corner.n);
    // Several images: all of each.
    return {columns, images * rows * columns, (65535 + columns) / columns, rows, (int)p.patch_h - rows * STRIDE_H};
}

struct Place {
    bool is_there;
    int x, dy;  // bytes
};

__device__ __forceinline__ Place place_of(const Params& p, const Part& part, int pixel, int pitch) {
    const int line = pixel * part.inverse >> 16, column = pixel - line * part.columns;
    int image = 0;
    if (p.tile_images > 1) image = line / part.high;
    return {pixel < part.count, (line * STRIDE_H + image * part.between) * pitch + column * PIXEL,
            (line * (int)p.tile_w + column) * RESULT};
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_grouped_wgrad(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = warp % GROUPS, share = warp / GROUPS % SHARES, turn = warp / (GROUPS * SHARES);
    const unsigned int slabs = (unsigned int)p.slabs, tiles = (unsigned int)p.tiles, step = (unsigned int)p.tile_step;
    const int slab = (int)(blockIdx.x % slabs);
    const int apart = (int)p.patch_apart * PIXEL, pitch = apart * STRIDE_W;
    const int zeros = STAGES * (int)p.stage_bytes;  // 16 bytes
    if (threadIdx.x < 4) *(int*)(memory + zeros + threadIdx.x * 4) = 0;

    // Where this lane's chunks lie, from a pixel's place on.
    int offset[OWN];
    #pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int chunk = (share * OWN + i) * 2 + lane / 8 % 2, tap = chunk / IN_CHUNKS;
        const int row = tap / S * DILATION_H, column = tap % S * DILATION_W;
        const int at = row * pitch + column / STRIDE_W * PIXEL + column % STRIDE_W * apart + chunk % IN_CHUNKS * 16;
        offset[i] = chunk < CHUNKS ? at + group * (IN * 2) : group * (IN * 2);
    }
    float sum[OWN][OUT_CHUNKS][4];
    #pragma unroll
    for (int i = 0; i < SUMS; ++i) sum[i / (OUT_CHUNKS * 4)][i / 4 % OUT_CHUNKS][i % 4] = 0.0f;

    wait_for_launch_before();
    unsigned int tile = blockIdx.x / slabs, ahead = tile;
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage, ahead += step) {
        if (ahead < tiles) fetch(p, memory + stage * (int)p.stage_bytes, ahead, slab);
        commit_copies();
    }
    int slot = 0;
    #pragma unroll 1
    for (; tile < tiles; tile += step, ahead += step) {
        await_copies<STAGES - 2>();
        __syncthreads();  // and nobody reads the stage that is filled next
        const int next = slot == 0 ? STAGES - 1 : slot - 1;
        if (ahead < tiles) fetch(p, memory + next * (int)p.stage_bytes, ahead, slab);
        commit_copies();
        const Part part = part_of(p, tile);
        const int patch = slot * (int)p.stage_bytes, results = patch + (int)p.patch_bytes + group * (OUT * 2);
        #pragma unroll 1
        for (int first = turn * 16; first < part.count; first += TURNS * 16) {
            const Place rows = place_of(p, part, first + lane / 16 * 8 + lane % 8, pitch);
            const Place columns = place_of(p, part, first + lane % 16, pitch);
            unsigned int b[(OUT_CHUNKS + 1) / 2][4];
            #pragma unroll
            for (int j = 0; j < OUT_CHUNKS; j += 2) {
                const int chunk = j + 1 < OUT_CHUNKS ? j + lane / 16 : j;
                load_matrices<true>(b[j / 2], memory, columns.is_there ? results + columns.dy + chunk * 16 : zeros);
            }
            #pragma unroll
            for (int i = 0; i < OWN; ++i) {
                unsigned int a[4];
                load_matrices<true>(a, memory, rows.is_there ? patch + rows.x + offset[i] : zeros);
                #pragma unroll
                for (int j = 0; j < OUT_CHUNKS; ++j)
                    warp_product<Element, true>(
                        sum[i][j], a[0], a[1], a[2], a[3], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]
                    );
            }
        }
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    await_copies<0>();
    let_next_start();

    // Turns of the pixels, in order, then the block's part: a line for each channel of dy, of the numbers of its window.
    if constexpr (TURNS > 1) {
        float* const exchange = (float*)memory + warp % (GROUPS * SHARES) * (32 * SUMS) + lane;
        #pragma unroll 1
        for (int from = 1; from < TURNS; ++from) {
            __syncthreads();
            if (turn == from)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) exchange[i * 32] = sum[i / (OUT_CHUNKS * 4)][i / 4 % OUT_CHUNKS][i % 4];
            __syncthreads();
            if (turn == 0)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) sum[i / (OUT_CHUNKS * 4)][i / 4 % OUT_CHUNKS][i % 4] += exchange[i * 32];
        }
        if (turn != 0) return;
    }
    const long long channels = (long long)slabs * (GROUPS * OUT), channel = (slab * GROUPS + group) * OUT + lane % 4 * 2;
    float* const to = p.partial + (blockIdx.x / slabs * channels + channel) * WINDOW + lane / 4;
    #pragma unroll
    for (int i = 0; i < OWN; ++i)
        #pragma unroll
        for (int j = 0; j < OUT_CHUNKS; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int chunk = (share * OWN + i) * 2 + e / 2;
                if (chunk < CHUNKS) to[(j * 8 + e % 2) * WINDOW + chunk * 8] = sum[i][j][e];
            }
}

// Four numbers of a window a thread; a block's warps share the parts: each adds every SLICES-th, in order.
extern "C" __global__ void __launch_bounds__(32 * SLICES) direct_grouped_wgrad_sum(const __grid_constant__ Params p) {
    __shared__ Pack<float, 4> shared[SLICES][32];
    const int lane = (int)threadIdx.x % 32, slice = (int)threadIdx.x / 32;
    const int at = ((int)blockIdx.x * 32 + lane) * 4, all = (int)p.channels * WINDOW;
    wait_for_launch_before();
    Pack<float, 4> sum{};
    if (at < all) {
        const float* from = p.partial + slice * (long long)all + at;
        #pragma unroll 4
        for (int part = slice; part < (int)p.parts; part += SLICES, from += SLICES * (long long)all) {
            const Pack<float, 4> one = load_pack<4>(from);
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum.at[e] += one.at[e];
        }
    }
    if constexpr (SLICES > 1) {
        shared[slice][lane] = sum;
        __syncthreads();
        if (slice != 0) return;
        #pragma unroll
        for (int other = 1; other < SLICES; ++other)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum.at[e] += shared[other][lane].at[e];
    }
    if (at >= all) return;
    const int k = at / WINDOW, rest = at - k * WINDOW, tap = rest / IN, c = rest - tap * IN, r = tap / S, s = tap - r * S;
    #pragma unroll
    for (int e = 0; e < 4; e += WIDTH) {
        const int place[6] = {k / OUT, k % OUT, c + e, 0, FLIP ? R - 1 - r : r, FLIP ? S - 1 - s : s};
        float acc[WIDTH];
        #pragma unroll
        for (int i = 0; i < WIDTH; ++i) acc[i] = sum.at[e + i];
        epilogue(p, place, acc);
    }
}
