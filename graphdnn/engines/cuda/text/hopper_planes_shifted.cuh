// One sum, modulo 2^32: a stage's products of the highest weight first, shifted by a byte before those of the next one
// are added. While the last ones are multiplied, a warp splits its rows of the next stage into planes.

struct Sums {
    int of[SUMS], total[SUMS];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) of[i] = total[i] = 0;
    }
    __device__ __forceinline__ void pin_all() { pin(total); }
    __device__ __forceinline__ Accumulator result(int i) const { return total[i]; }

    // `left` stages from the ring.
    __device__ __forceinline__ void add_stages(const Ring& ring, Turn<STAGES>& turn, int left) {
        word_t part[BLOCKS][PLANES_A][4];
        if (left > 0) {
            await_phase(ring.full + 8 * turn.stage, turn.parity);
            load_stage(part, ring, turn.stage);
        }
        #pragma unroll 1
        for (; left > 0; --left) {
            const int stage = turn.stage;
            const matrix_t b = planes_at(ring.b + stage * B_BYTES);
            turn.advance();
            word_t next[BLOCKS][PLANES_A][4];
            #pragma unroll
            for (int weight = WEIGHTS - 1; weight >= 0; --weight) {
                pin(of);
                pin_parts(part);
                products_begin();
                multiply_weight(of, part, b, weight);
                products_end();
                if (weight == 0) {
                    if (left > 1) await_phase(ring.full + 8 * turn.stage, turn.parity);
                    load_stage(next, ring, left > 1 ? turn.stage : stage);
                }
                await_products<0>();
                pin(of);
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) {
                    if (weight > 0) of[i] = (int)((unsigned int)of[i] << 8);
                    else total[i] = wrapping_sum(total[i], of[i]);
                }
            }
            ring.release(stage);
            #pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                #pragma unroll
                for (int i = 0; i < PLANES_A; ++i)
                    #pragma unroll
                    for (int r = 0; r < 4; ++r) part[block][i][r] = next[block][i][r];
        }
    }

private:
    static __device__ __forceinline__ void load_stage(word_t (&to)[BLOCKS][PLANES_A][4], const Ring& ring, int stage) {
        #pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
            load_planes<Element>(to[block], ring.memory, ring.lane_at + stage * A_BYTES, block);
    }
    static __device__ __forceinline__ void pin_parts(word_t (&part)[BLOCKS][PLANES_A][4]) {
        #pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
            #pragma unroll
            for (int i = 0; i < PLANES_A; ++i) pin(part[block][i]);
    }
};
