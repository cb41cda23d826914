// The items of a filter gradient: pieces of images that a block walks down one after the other, rows of the next one under
// way while those of the last are added.

// An image's rows first .. last - 1 of dy. A turn is ROWS steps.
template <int ROWS> struct Item {
    int n, column_block, first, last, turns;

    __device__ __forceinline__ Item(const Params& p, unsigned int index) {
        column_block = (int)(index % (unsigned int)p.column_blocks);
        index /= (unsigned int)p.column_blocks;
        first = (int)(index % (unsigned int)p.segments * (unsigned int)p.segment_rows);
        n = (int)(index / (unsigned int)p.segments);
        last = first + (int)p.segment_rows < (int)p.rows ? first + (int)p.segment_rows : (int)p.rows;
        // Steps whose rows of x all lie below the image add nothing.
        const int inside = ((int)p.in_h - first * IN_ROWS - (int)p.in_row + IN_ROWS - 1) / IN_ROWS;
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
                p.gathered + item.n * p.gathered_n, p.gathered_h, p.gathered_w, (int)p.in_h, (int)p.in_w, channels_in,
                item.first * IN_ROWS + (int)p.in_row, item.column_block * TILES * STEP_W + (int)p.in_column, channel_in
            );
            gradients.start(
                p.plain + item.n * p.plain_n, p.plain_h, p.plain_w, item.last, (int)p.out_w, (int)p.channels_out,
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
