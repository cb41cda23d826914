// grid_sample_image computes the gradient of the image. Each CTA visits the positions of its image in one order, so that every sum
// has one order and no atomics are needed.
//
// Tile:    TILE_ROWS x TILE_COLUMNS pixels and CHANNELS channels for a CTA.
// Memory:  the CTA lists the pieces of the grid that may overlap its tile (THREADS boxes at a time), then the positions of
//          these pieces that do overlap it, in shared memory.
// Threads: a warp has one row of the tile and skips positions that miss the row. Sums (grid_sample_vectors.cuh or
//          grid_sample_pixels.cuh) defines which lane sums which pixel and channel.
//
// Required constants (from the generator):
//   THREADS: TILE_ROWS * TILE_COLUMNS; TILE_COLUMNS: 32; BLOCKS: CTAs that must fit on an SM.
//   CHANNELS: channels of a thread or a CTA; VEC_WIDTH: channels of a vector, 1 if channels are not contiguous.
//
// Variants (from the generator): VECTOR_CHANNELS: 1: a thread adds vectors of channels; 0: single elements.

#include "pdl.cuh"
#include "grid_sample.cuh"
#include "grid_sample_pieces.cuh"
#include "grid_sample_listing.cuh"
#if VECTOR_CHANNELS
#include "grid_sample_vectors.cuh"
#else
#include "grid_sample_pixels.cuh"
#endif

struct Compacted {
    int place, hit_count;  // hits before this thread's, and in total
};

// The index of a thread's hit in the list of all hits.
__device__ __forceinline__ Compacted compact(bool has, int (&warp_counts)[THREADS / 32]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const unsigned int votes = __ballot_sync(~0u, has);
    if (lane == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    Compacted to = {__popc(votes & ((1u << lane) - 1)), 0};
    #pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) {
        to.place += i < warp ? warp_counts[i] : 0;
        to.hit_count += warp_counts[i];
    }
    return to;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) grid_sample_image(const __grid_constant__ Params p) {
    constexpr int WARPS = THREADS / 32;
    static_assert(TILE_COLUMNS == 32, "a warp is a row");
    __shared__ Listing list;
    __shared__ int pieces[THREADS], warp_counts[WARPS];

    pdl_trigger();
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int tiles = (int)(p.tiles_across * p.tiles_down), across = (int)p.tiles_across, groups = (int)p.groups;
    const int tile = (int)blockIdx.x % tiles, above = (int)blockIdx.x / tiles;
    const int first = above % groups * CHANNELS;
    const long long n = above / groups;
    const int top = tile / across * TILE_ROWS, left = tile % across * TILE_COLUMNS;
    const int h = top + warp, w = left + lane;
    const Part part = {
        lane,
        h,
        left,
        ((int)p.channels - first) / VEC_WIDTH - 1,
        (Index)n * (Index)p.dy_stride[0] + first * (Index)p.dy_stride[1],
        (Index)n * (Index)p.dx_stride[0] + h * (Index)p.dx_stride[2] + first * (Index)p.dx_stride[1],
    };
    Sums sums;

    pdl_wait();
    const Box* const boxes = (const Box*)p.boxes + n * p.pieces;
    const int every = (int)p.pieces;
    int start = 0, near = 0, next = 0;  // `near` of the visited pieces may overlap the tile
    while (true) {
        while (next == near && start < every) {
            bool overlaps = false;
            if (start + thread < every) {
                const Box box = boxes[start + thread];
                overlaps = box.left < left + TILE_COLUMNS && box.right + 1 >= left && box.top < top + TILE_ROWS &&
                      box.bottom + 1 >= top;
            }
            const Compacted listed = compact(overlaps, warp_counts);
            if (overlaps) pieces[listed.place] = start + thread;
            start += THREADS;
            near = listed.hit_count;
            next = 0;
            __syncthreads();
        }
        if (next == near) break;
        Place place;
        bool meets = false;
        int row = 0, column = 0;
        if (next + warp < near) {
            const Position position = position_in(pieces[next + warp], p);
            if (position.is_one) {
                row = position.row, column = position.column;
                place = place_at(n, row, column, p);
                meets = place.is_near && place.left < left + TILE_COLUMNS && place.left + 1 >= left &&
                        place.top < top + TILE_ROWS && place.top + 1 >= top;
            }
        }
        next = next + WARPS < near ? next + WARPS : near;
        const Compacted listed = compact(meets, warp_counts);
        const int hit_count = listed.hit_count, before = listed.place;
        if (meets) list.put(before, place, row * (Index)p.dy_stride[2] + column * (Index)p.dy_stride[3]);
        __syncthreads();
        for (int base = 0; base < hit_count; base += 32) {
            const bool listed = base + lane < hit_count;
            const int down_of_lane = listed ? h - list.tops[base + lane] : -1;
            unsigned int hits = __ballot_sync(~0u, down_of_lane == 0 || down_of_lane == 1), own = 0;
            for (; hits; hits &= hits - 1) {  // the positions of the row that overlap this lane's pixel
                const int bit = __ffs((int)hits) - 1, to_right = w - list.lefts[base + bit];
                own |= to_right == 0 || to_right == 1 ? 1u << bit : 0;
            }
            if (w >= (int)p.width) own = 0;
            sums.add(p, list, part, base, own);
        }
        __syncthreads();  // all threads have read the list before it is overwritten
    }
    if (h < (int)p.height) sums.give(p, part);
}
