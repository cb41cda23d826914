// The items of a filter gradient (direct_wgrad_item.cuh) on their way through shared memory: rows of the next one are under
// way while those of the last are added.

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
