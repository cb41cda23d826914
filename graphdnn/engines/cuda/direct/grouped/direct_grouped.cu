// Groups of 8 to 64 channels on tensor cores of warps, fprop and, for unit stride, dgrad.
//
// A block takes the channels of GROUPS groups and keeps their filters; patches of images arrive in shared memory, the next
// one while a block multiplies. A product's rows are 16 pixels, its columns 8 output channels, and its depth two chunks of 8
// channels of one tap or two: the sum runs over (tap, chunk), all of which is there. Nothing is multiplied with another
// group's channels, so nothing of it, infinity or NaN, reaches a result.

constexpr int IN_CHUNKS = IN / 8, OUT_CHUNKS = OUT / 8, CHUNKS = R * S * IN_CHUNKS;
constexpr int TURNS = S * IN_CHUNKS % 2 == 0 ? R : 1;  // a row of taps at a time, where it is whole steps
constexpr int TURN = CHUNKS / TURNS, STEPS = (TURN + 1) / 2;
constexpr int WIDE = GROUPS * IN_CHUNKS;               // chunks of a pixel
constexpr int PIXEL = PIXEL_BYTES<WIDE>;
constexpr int LINE = (CHUNKS | 1) * 16;                // of a line of filters
constexpr int FILTER_BYTES = GROUPS * OUT * LINE + 16; // behind the last line a chunk is read that counts nothing
constexpr int TOGETHER = JOINED * OUT;                 // channels of a job: those of some groups, for long pieces of memory
constexpr int HALL_PITCH = TOGETHER + (TOGETHER % 16 ? 0 : 8);
constexpr int HALL = 16 * HALL_PITCH;                  // floats of a warp
constexpr int PACKS = TOGETHER / WIDTH;
constexpr int WARPS = THREADS / 32;
static_assert(WIDE <= 32 && GROUPS % JOINED == 0 && sizeof(Element) == 2, "whole jobs of 16-bit floats");

// Where a pixel of the tile begins in the patch, in bytes, and its place: image, row and column, ten bits each.
struct __align__(8) Place {
    int from;
    unsigned int at;
};

// Filters lie as [k][tap][c]. Here a line has an output channel's (fprop), or eight lines have the matrices of eight output
// channels, a line for each k (dgrad); along a line go the chunks in the order of the sum.
__device__ __forceinline__ void fetch_filters(const Params& p, unsigned char* to, int slab) {
    constexpr int NEAR = DGRAD ? OUT_CHUNKS : IN_CHUNKS, LINES = GROUPS * (DGRAD ? IN : OUT), FAR = DGRAD ? IN : OUT;
    const Element* const from = p.filter + (long long)slab * (LINES * R * S * NEAR * 8);
    for (int i = (int)threadIdx.x; i < LINES * R * S * NEAR; i += THREADS) {
        const int k = i / (R * S * NEAR), rest = i - k * (R * S * NEAR), read = rest / NEAR, c = rest - read * NEAR;
        const int tap = FLIP ? R * S - 1 - read : read;
        const int group = k / FAR, lane = k - group * FAR;
        const int line = DGRAD ? (group * OUT_CHUNKS + c) * 8 + lane % 8 : k;
        const int chunk = tap * IN_CHUNKS + (DGRAD ? lane / 8 : c);
        copy_async<16>(to + line * LINE + chunk * 16, from + i * 8, true);
    }
}

__device__ __forceinline__ void fetch_patch(const Params& p, unsigned char* to, const Corner& corner, int slab) {
    const Image image{p.gathered + slab * (GROUPS * IN), p.gathered_n,  p.gathered_h, p.gathered_w,
                      (int)p.images,                     (int)p.in_h,   (int)p.in_w};
    const Cut cut{corner.n, corner.row * STRIDE_H + (int)p.in_row, corner.column * STRIDE_W + (int)p.in_column,
                  (int)p.tile_images, (int)p.patch_h, (int)p.patch_w};
    fetch_lines<WIDE, STRIDE_W, WARPS>(image, cut, (int)p.patch_apart, to);
}

// The products of a turn: `a` and `b` are where its first chunks lie.
__device__ __forceinline__ void multiply(
    const unsigned char* patch, const int (&a)[ROWS], const unsigned char* filters, int b, int last, int pitch, int apart,
    float (&sum)[ROWS][OUT_CHUNKS][4]
) {
    const bool is_high = (int)threadIdx.x % 32 >= 16;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const auto place = [&](int chunk) {
            const int column = chunk / IN_CHUNKS % S * DILATION_W;
            return column / STRIDE_W * PIXEL + column % STRIDE_W * apart + chunk % IN_CHUNKS * 16;
        };
        const int low = 2 * step, high = low + 1 < TURN ? low + 1 : low;
        const int down_low = low / (S * IN_CHUNKS) * DILATION_H, down_high = high / (S * IN_CHUNKS) * DILATION_H;
        const int offset = is_high ? place(high) + down_high * pitch : place(low) + down_low * pitch;
        unsigned int x[ROWS][4];
        #pragma unroll
        for (int m = 0; m < ROWS; ++m) load_matrices<false>(x[m], patch, a[m] + offset);
        #pragma unroll
        for (int j = 0; j < OUT_CHUNKS; j += 2) {
            unsigned int w[4];
            load_matrices<DGRAD>(w, filters, (j + 1 < OUT_CHUNKS ? b : last) + j * 8 * LINE + 2 * step * 16);
            #pragma unroll
            for (int m = 0; m < ROWS; ++m)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    if (j + half >= OUT_CHUNKS) continue;
                    if (low + 1 < TURN)
                        warp_product<Element, true>(
                            sum[m][j + half], x[m][0], x[m][1], x[m][2], x[m][3], w[2 * half], w[2 * half + 1]
                        );
                    else
                        warp_product<Element, false>(sum[m][j + half], x[m][0], x[m][1], 0, 0, w[2 * half], 0);
                }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) direct_grouped(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char memory[];
    pdl_trigger();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const unsigned int slabs = (unsigned int)p.slabs;
    const int slab = (int)(blockIdx.x % slabs);
    const int pixels = (int)p.tile_pixels, apart = (int)p.patch_apart * PIXEL, pitch = apart * STRIDE_W;
    float* const hall = (float*)(memory + FILTER_BYTES) + warp * HALL;
    Place* const places = (Place*)(memory + FILTER_BYTES + WARPS * HALL * 4);
    const int patches = FILTER_BYTES + WARPS * HALL * 4 + (int)p.table_bytes;

    for (int i = (int)threadIdx.x; i < (int)p.table_bytes / 8; i += THREADS) {
        const int pixel = i < pixels ? i : pixels - 1, area = (int)p.tile_h * (int)p.tile_w;
        const int image = pixel / area, rest = pixel - image * area, h = rest / (int)p.tile_w, w = rest - h * (int)p.tile_w;
        const int line = image * (int)p.patch_h + h * STRIDE_H;
        places[i] = {line * pitch + w * PIXEL, i < pixels ? (unsigned int)(image << 20 | h << 10 | w) : ~0u};
    }
    pdl_wait();
    unsigned int tile = blockIdx.x / slabs;
    fetch_filters(p, memory, slab);
    if (tile < (unsigned int)p.tiles) fetch_patch(p, memory + patches, corner_of(p, tile), slab);
    commit_copies();

    int slot = 0;
    #pragma unroll 1
    for (; tile < (unsigned int)p.tiles; tile += (unsigned int)p.tile_step) {
        const unsigned int next = tile + (unsigned int)p.tile_step;
        if constexpr (STAGES > 1) {
            if (next < (unsigned int)p.tiles)
                fetch_patch(p, memory + patches + (slot ^ 1) * (int)p.patch_bytes, corner_of(p, next), slab);
            commit_copies();
        }
        await_copies<STAGES - 1>();
        __syncthreads();
        const Corner corner = corner_of(p, tile);
        const int patch = patches + slot * (int)p.patch_bytes;
        const int jobs = (pixels + 16 * ROWS - 1) / (16 * ROWS) * (GROUPS / JOINED);
        #pragma unroll 1
        for (int job = warp; job < jobs; job += WARPS) {
            const int block = job / (GROUPS / JOINED), group = (job - block * (GROUPS / JOINED)) * JOINED;
            const int first = block * (16 * ROWS);
            const int channel0 = (slab * GROUPS + group) * OUT;
            ColumnOperands kept;
            if constexpr (32 % PACKS == 0) {
                const int at[4] = {corner.n, channel0 + lane % PACKS * WIDTH, corner.row, corner.column};
                load_column_operands(p, at, kept);
            }
            int a[ROWS];
            #pragma unroll
            for (int m = 0; m < ROWS; ++m) a[m] = patch + places[first + m * 16 + lane % 16].from + group * (IN * 2);
            const int line = group * OUT + lane % 8;
            int last = line * LINE + lane / 8 % 2 * 16, b = last + lane / 16 * 8 * LINE;
            float sum[JOINED][ROWS][OUT_CHUNKS][4];
            #pragma unroll
            for (int q = 0; q < JOINED; ++q)
                #pragma unroll
                for (int m = 0; m < ROWS; ++m)
                    #pragma unroll
                    for (int j = 0; j < OUT_CHUNKS; ++j)
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) sum[q][m][j][e] = 0.0f;
            #pragma unroll 1
            for (int pipe = 0; pipe < TURNS; ++pipe) {
                #pragma unroll
                for (int q = 0; q < JOINED; ++q)
                    multiply(memory + q * (IN * 2), a, memory + q * (OUT * LINE), b, last, pitch, apart, sum[q]);
                #pragma unroll
                for (int m = 0; m < ROWS; ++m) a[m] += DILATION_H * pitch;
                b += TURN * 16, last += TURN * 16;
            }

            #pragma unroll
            for (int m = 0; m < ROWS; ++m) {
                #pragma unroll
                for (int q = 0; q < JOINED; ++q)
                    #pragma unroll
                    for (int j = 0; j < OUT_CHUNKS; ++j)
                        #pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            Vec<float, 2> pack;
                            pack[0] = sum[q][m][j][2 * half];
                            pack[1] = sum[q][m][j][2 * half + 1];
                            float* const to = hall + (half * 8 + lane / 4) * HALL_PITCH + q * OUT + j * 8 + lane % 4 * 2;
                            *(Vec<float, 2>*)to = pack;
                        }
                __syncwarp();
                #pragma unroll
                for (int i = 0; i < (16 * PACKS + 31) / 32; ++i) {
                    const int item = i * 32 + lane, row = item / PACKS, column = item % PACKS * WIDTH;
                    if (16 * PACKS % 32 != 0 && row >= 16) continue;
                    const unsigned int place = places[first + m * 16 + row].at;
                    const int n = corner.n + (int)(place >> 20), h = corner.row + (int)(place >> 10 & 1023u);
                    const int w = corner.column + (int)(place & 1023u);
                    if (place == ~0u || n >= (int)p.images || h >= (int)p.out_h || w >= (int)p.out_w) continue;
                    const int at[4] = {n, channel0 + column, h, w};
                    if constexpr (32 % PACKS != 0) load_column_operands(p, at, kept);
                    const Vec<float, WIDTH> pack = load_vec<WIDTH>(hall + row * HALL_PITCH + column);
                    float acc[WIDTH];
                    #pragma unroll
                    for (int e = 0; e < WIDTH; ++e) acc[e] = pack.at[e];
                    epilogue(p, at, kept, acc);
                }
                __syncwarp();
            }
        }
        __syncthreads();  // the patch is overwritten next
        if constexpr (STAGES > 1) {
            slot ^= 1;
        } else {
            if (next < (unsigned int)p.tiles) fetch_patch(p, memory + patches, corner_of(p, next), slab);
            commit_copies();
        }
    }
    await_copies<0>();
}
