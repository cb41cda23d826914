// An item of a filter gradient: a piece of an image. A block walks down one after the other.

// An image's rows first .. last - 1 of dy. A turn is ROWS steps.
template <int ROWS> struct Item {
    int n, column_block, first, last, turns;
    Remainder down, across;
    int in_h, in_w, out_w;  // of the part

    __device__ __forceinline__ Item(const Params& p, unsigned int index) {
        column_block = (int)(index % (unsigned int)p.column_blocks);
        index /= (unsigned int)p.column_blocks;
        first = (int)(index % (unsigned int)p.segments * (unsigned int)p.segment_rows);
        index /= (unsigned int)p.segments;
        down = remainder_of((int)(index % DILATION_H), (int)p.in_row, DILATION_H);
        across = remainder_of((int)(index / DILATION_H % DILATION_W), (int)p.in_column, DILATION_W);
        n = (int)(index / (DILATION_H * DILATION_W));
        in_h = places((int)p.in_h, down.met, DILATION_H);
        in_w = places((int)p.in_w, across.met, DILATION_W);
        out_w = places((int)p.out_w, across.own, DILATION_W);
        const int out_h = places((int)p.out_h, down.own, DILATION_H);
        last = first + (int)p.segment_rows < out_h ? first + (int)p.segment_rows : out_h;
        // Steps whose rows of x all lie below the image add nothing.
        const int inside = (in_h - first * IN_ROWS - down.shift + IN_ROWS - 1) / IN_ROWS;
        const int steps = last - first + EXTRA < inside ? last - first + EXTRA : inside > 0 ? inside : 0;
        turns = (steps + ROWS - 1) / ROWS;
    }
};
