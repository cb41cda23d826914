// The items of a filter gradient: pieces of images that a block walks down one after the other, rows of the next one under
// way while those of the last are added.

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

// Both operands' rings. BEFORE_TILE: columns of dy before the block's first that are there too.
template <class Images, class Gradients, int ROWS, int BEFORE_TILE> struct Items {
    Images images;
    Gradients gradients;
    int channel_in, channel_out;         // the block's first
    unsigned int coming = blockIdx.y;    // the item whose rows are fetched
    int left = 0, target = 0;            // its turns that are not, and the slot for the next

    __device__ __forceinline__ Items(unsigned char* memory, int channel_in, int channel_out)
        : images(memory), gradients(memory + Images::BYTES), channel_in(channel_in), channel_out(channel_out) {}

    // Begins the copy of the next turn.
    __device__ __forceinline__ void fetch(const Params& p, int channels_in) {
        while (left == 0 && coming < (unsigned int)p.items) {
            const Item<ROWS> item(p, coming);
            left = item.turns;
            images.start(
                p.gathered + item.n * p.gathered_n + item.down.met * p.gathered_h + item.across.met * p.gathered_w,
                p.gathered_h * DILATION_H, p.gathered_w * DILATION_W, item.in_h, item.in_w, channels_in,
                item.first * IN_ROWS + item.down.shift, item.column_block * TILES * STEP_W + item.across.shift, channel_in
            );
            gradients.start(
                p.plain + item.n * p.plain_n + item.down.own * p.plain_h + item.across.own * p.plain_w,
                p.plain_h * DILATION_H, p.plain_w * DILATION_W, item.last, item.out_w, (int)p.channels_out,
                item.first, item.column_block * TILES * TW - BEFORE_TILE, channel_out
            );
            coming += gridDim.y;
        }
        if (left > 0) {
            images.fetch(target);
            gradients.fetch(target);
            --left;
        }
        target = target + 1 == STAGES ? 0 : target + 1;
        commit_copies();
    }
};
