// A work item of a filter gradient: a segment of rows and a block of columns of one image. A CTA slides down its work
// items one after the other.

#include "direct_row_ring.cuh"
#include "dilation_phase.cuh"

// Rows first .. last - 1 of dy. An iteration of the main loop is ROWS steps.
template <int ROWS> struct WorkItem {
    int n, column_block, first, last, iterations;
    DilationPhase phase_h, phase_w;
    int in_h, in_w, out_w;  // extents of the dilation phase

    __device__ __forceinline__ WorkItem(const Params& p, unsigned int index) {
        column_block = (int)(index % (unsigned int)p.column_blocks);
        index /= (unsigned int)p.column_blocks;
        first = (int)(index % (unsigned int)p.segments * (unsigned int)p.segment_rows);
        index /= (unsigned int)p.segments;
        phase_h = dilation_phase((int)(index % DILATION_H), (int)p.in_row, DILATION_H);
        phase_w = dilation_phase((int)(index / DILATION_H % DILATION_W), (int)p.in_column, DILATION_W);
        n = (int)(index / (DILATION_H * DILATION_W));
        in_h = phase_extent((int)p.in_h, phase_h.image_phase, DILATION_H);
        in_w = phase_extent((int)p.in_w, phase_w.image_phase, DILATION_W);
        out_w = phase_extent((int)p.out_w, phase_w.out_phase, DILATION_W);
        const int out_h = phase_extent((int)p.out_h, phase_h.out_phase, DILATION_H);
        last = first + (int)p.segment_rows < out_h ? first + (int)p.segment_rows : out_h;
        // Steps whose rows of x all lie below the image contribute nothing.
        const int inside = (in_h - first * IN_ROWS - phase_h.shift + IN_ROWS - 1) / IN_ROWS;
        const int steps = last - first + WARMUP_STEPS < inside ? last - first + WARMUP_STEPS : inside > 0 ? inside : 0;
        iterations = (steps + ROWS - 1) / ROWS;
    }
};
