// The load pipeline of a filter gradient (direct_wgrad_item.cuh). Rows of the next work item arrive in shared memory
// while the CTA still multiplies rows of the current one.

#include "direct_copy.cuh"
#include "direct_row_ring.cuh"
#include "direct_wgrad_item.cuh"

// The rings of both operands. HALO_COLUMNS: columns of dy to the left of the CTA's first column that it also loads.
template <class XRing, class DyRing, int ROWS, int HALO_COLUMNS> struct WorkItemLoader {
    XRing x_ring;
    DyRing dy_ring;
    int channel_in, channel_out;         // the CTA's first channels
    unsigned int next_item = blockIdx.y;    // the work item after the one that is being loaded
    int remaining = 0, load_stage = 0;            // iterations that are not loaded yet, and the stage for the next one

    __device__ __forceinline__ WorkItemLoader(unsigned char* memory, int channel_in, int channel_out)
        : x_ring(memory), dy_ring(memory + XRing::BYTES), channel_in(channel_in), channel_out(channel_out) {}

    // Issues the copies of the next iteration. `channels_in` is the number of channels of x.
    __device__ __forceinline__ void load_step(const Params& p, int channels_in) {
        while (remaining == 0 && next_item < (unsigned int)p.items) {
            const WorkItem<ROWS> item(p, next_item);
            remaining = item.iterations;
            x_ring.begin_image(
                p.image + item.n * p.image_n + item.phase_h.image_phase * p.image_h + item.phase_w.image_phase * p.image_w,
                p.image_h * DILATION_H, p.image_w * DILATION_W, item.in_h, item.in_w, channels_in,
                item.first * IN_ROWS + item.phase_h.shift, item.column_block * TILES * STEP_W + item.phase_w.shift, channel_in
            );
            dy_ring.begin_image(
                p.dy + item.n * p.dy_n + item.phase_h.out_phase * p.dy_h + item.phase_w.out_phase * p.dy_w,
                p.dy_h * DILATION_H, p.dy_w * DILATION_W, item.last, item.out_w, (int)p.channels_out,
                item.first, item.column_block * TILES * TW - HALO_COLUMNS, channel_out
            );
            next_item += gridDim.y;
        }
        if (remaining > 0) {
            x_ring.load_step(load_stage);
            dy_ring.load_step(load_stage);
            --remaining;
        }
        load_stage = load_stage + 1 == STAGES ? 0 : load_stage + 1;
        cp_async_commit();
    }
};
