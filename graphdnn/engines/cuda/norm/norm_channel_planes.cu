// norm_channel_planes normalizes channels, or groups of channels, whose elements lie in many short segments.
//
// Tile:    CHANNELS adjacent rows (channels or groups) for a CTA, or for a cluster of CTAs that divides their segments.
// Memory:  a segment is contiguous. Segments stay in shared memory: x is read once and y is written once.
// Threads: a thread has one position in every segment that it reads, so that each of its VEC_WIDTH elements always belongs to the
//          same row. Sums go over segments first, then over the positions of a row, then over the CTAs of the cluster.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, 256 or 512; BLOCKS: CTAs that must fit on an SM.
//   CHANNELS: rows of a CTA; VEC_WIDTH: elements of a vector, 1 to 8; RANK: axes of the index space.
//   ROW_RANK: axes that count rows: 1 for channels, 3 for groups, which are (image, group, element of a group).
//   PASSED_ELEMENTS: elements of a vector whose sums pass through shared memory at a time, 1 to VEC_WIDTH.
//   CENTERED: 1 if a mean is subtracted; always 1 here.
//   CLUSTER: CTAs of a cluster, if COMBINE_SCOPE is 1.
//   IN_CLUSTERS and SCALES_VARY come from the channel_planes_*.cuh file of the variant and of the direction.
//
// Variants (from the generator): see channel_planes_variant.cuh.

#include "pdl.cuh"
#include "channel_planes.cuh"
#if COMBINE_SCOPE == 1
#include "channel_planes_cluster_combine.cuh"
#endif

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, BLOCKS) norm_channel_planes(const __grid_constant__ Params p) {
    __shared__ Compute row_sums[2][CHANNELS];  // sums of rows
    pdl_trigger();
    const Segments segments = locate_segments(p, (int)blockIdx.x);
    announce_cluster();
    pdl_wait();
    int rows[VEC_WIDTH];
    Row row;
    compute_sums(p, segments, rows, evict_first_policy(), row, row_sums);
    reduce_slices(p, segments.slice, segments.dsmem_buffer, row_sums);
    if constexpr (SCALES_VARY) store_element_sums(p, segments);
    finish_rows(p, segments, rows, row, row_sums);
    segments.each([&](int n, const Stored& vec) {
        int at[RANK];
        segments.locate_segment(n, at);
        epilogue(p, at, widened(vec), row);
    });
}
