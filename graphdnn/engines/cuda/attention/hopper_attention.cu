// Attention on the tensor cores of compute capability 9.0 (wgmma): o = softmax(f(q k)) v, where f is whatever stands between
// the first product and the softmax (the generated `score`).
//
// A block has one warpgroup that copies and GROUPS that multiply, 64 rows of q each; it takes tile after tile. Keys and values
// arrive in rings of STAGES blocks of BN keys, the last ones that a tile sees first. A warpgroup multiplies its rows by a
// block of keys from shared memory; the scores stay in its registers and, as powers below the largest one so far, are the
// left operand of the product with the block of values. When a larger score comes, what was summed is scaled down.
//
// The next block's scores are asked for ahead of this block's product with the values. And warpgroups ask in turns: what one
// does with its scores runs beside the products of the others.

constexpr int BM = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
constexpr int PANELS_Q = (DEPTH + 63) / 64, PANELS_V = (COLUMNS + 63) / 64;  // of 128 bytes of a head
constexpr int Q_BYTES = PANELS_Q * BM * SWIZZLE_BYTES, K_BYTES = PANELS_Q * BN * SWIZZLE_BYTES, V_BYTES = PANELS_V * BN * SWIZZLE_BYTES;
constexpr float LOG2_E = 1.44269504f;
constexpr float FAR = 1e6f;  // exponents that are rounded by 1/32 at most are below it
static_assert(DEPTH % 16 == 0 && BN % 16 == 0 && COLUMNS % 8 == 0 && 2 <= RANK && RANK <= 5, "whole products");
static_assert(128 * (PRODUCER_REGS + GROUPS * CONSUMER_REGS) <= 65536, "registers of a multiprocessor");

// ---- what a tile is

template <bool VALUE> struct Truth { static constexpr bool value = VALUE; };

// `begin` to `end`: blocks of keys that rows of the tile see; between `whole` and `whole_end` all rows see all of them.
struct Tile {
    int at[RANK] = {}, row, begin, end, whole, whole_end;
    // Tiles of `heads_together` heads follow each other, row by row: their keys and values are in the cache at the same time.
    // Where later rows see more keys, these come first, so that the last tiles are short ones.
    __device__ __forceinline__ Tile(const Params& p, int number) {
        const int row_tiles = (int)p.row_tiles, together = (int)p.heads_together;
        const int set = number / (row_tiles * together), in_set = number - set * (row_tiles * together);
        const int left = (int)p.stack - set * together, heads = left < together ? left : together;
        const int down = in_set / heads;
        int rest = set * together + in_set - down * heads;
        row = (HAS_LAST ? row_tiles - 1 - down : down) * BM;
        #pragma unroll
        for (int d = RANK - 3; d >= 0; --d) {
            const int next = rest / (int)p.batch[d];
            at[d] = rest - next * (int)p.batch[d];
            rest = next;
        }
        const int rows = (int)p.rows, keys = (int)p.keys, last_row = (row + BM < rows ? row + BM : rows) - 1;
        int first = 0, first_whole = 0, last = keys, last_whole = keys;
        if (HAS_FIRST) {
            first = row + (int)p.first_key > 0 ? row + (int)p.first_key : 0;
            first_whole = last_row + (int)p.first_key > 0 ? last_row + (int)p.first_key : 0;
        }
        if (HAS_LAST) {
            last = last_row + (int)p.last_key + 1 < keys ? last_row + (int)p.last_key + 1 : keys;
            last_whole = row + (int)p.last_key + 1 < keys ? row + (int)p.last_key + 1 : keys;
        }
        begin = first / BN;
        end = last > first ? (last + BN - 1) / BN : begin;
        whole = (first_whole + BN - 1) / BN;
        whole_end = last_whole > 0 ? last_whole / BN : 0;
    }
};

// ---- copies

// Line `line` and those behind it of a head, of the panel that begins with element `first`.
__device__ __forceinline__ void copy_lines(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int first, int line, const int (&at)[RANK], const long long* shared
) {
    const auto own = [&](int d) { return at[d] / (int)shared[d]; };
    if constexpr (RANK == 2) tma_load_tile(to, map, barrier, first, line);
    else if constexpr (RANK == 3) tma_load_tile(to, map, barrier, first, line, own(0));
    else if constexpr (RANK == 4) tma_load_tile(to, map, barrier, first, line, own(1), own(0));
    else tma_load_tile(to, map, barrier, first, line, own(2), own(1), own(0));
}

// ---- the products

// Values lie across k: panels of `BN` lines.
__device__ __forceinline__ smem_desc_t values_at(smem_addr_t address) {
    const smem_desc_t between_panels = BN * SWIZZLE_BYTES >> 4, between_eights = (8 * SWIZZLE_BYTES) >> 4, swizzled = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}
__device__ __forceinline__ void ask_scores(float (&s)[BN / 2], smem_desc_t q, smem_desc_t k) {
    #pragma unroll
    for (int i = 0; i < DEPTH / 16; ++i)
        multiply_scores(s, q + (i / 4 * BM * SWIZZLE_BYTES + i % 4 * 32 >> 4), k + (i / 4 * BN * SWIZZLE_BYTES + i % 4 * 32 >> 4), i > 0);
}
__device__ __forceinline__ void ask_results(float (&sum)[COLUMNS / 2], const unsigned int (&powers)[BN / 16][4], smem_desc_t v) {
    #pragma unroll
    for (int i = 0; i < BN / 16; ++i) multiply_rows(sum, powers[i], v + i * (16 * SWIZZLE_BYTES >> 4), 1);
}

template <int COUNT> __device__ __forceinline__ void fence_accumulators(unsigned int (&x)[COUNT][4]) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(x[i][j])::"memory");
#endif
}

// What would otherwise be converted again for each block.
__device__ __forceinline__ void keep_in_register(float& x) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+f"(x));
#endif
}

// Whose turn it is to ask for products: a named barrier of each warpgroup.
__device__ __forceinline__ void await_turn(int group) {
    if (GROUPS == 1) return;
#ifdef __CUDA_ARCH__
    asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory");
#else
    emulated_bar_sync(2 + group, 256);
#endif
}
__device__ __forceinline__ void give_turn(int group) {
    if (GROUPS == 1) return;
#ifdef __CUDA_ARCH__
    asm volatile("bar.arrive %0, 256;" ::"r"(2 + group) : "memory");
#else
    emulated_bar_arrive(2 + group, 256);
#endif
}

// ---- the softmax

__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// Two powers as one word of the second product's rows.
__device__ __forceinline__ unsigned int packed_pair(float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned int pair;
    if constexpr (same<Value, half_t>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (unsigned int)narrow<Value>(low).bits | (unsigned int)narrow<Value>(high).bits << 16;
#endif
}

// Sums of the first product to what the softmax is of, for 64 rows and a block of keys. What is outside has no weight, nor has
// what the band's masks hide, which `score` leaves out for that.
template <bool IS_WHOLE>
__device__ __forceinline__ void score_block(const Params& p, const Tile& t, int row, int block, float (&s)[BN / 2]) {
    const int rows = (int)p.rows, keys = (int)p.keys, first_key = block * BN + (int)threadIdx.x % 4 * 2;
    int at[RANK];
    #pragma unroll
    for (int d = 0; d < RANK - 2; ++d) at[d] = t.at[d];
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        at[RANK - 2] = row + 8 * h < rows ? row + 8 * h : rows - 1;
        int low = 0, high = keys - 1;
        if (HAS_FIRST) low = row + 8 * h + (int)p.first_key;
        if (HAS_LAST) high = row + 8 * h + (int)p.last_key < high ? row + 8 * h + (int)p.last_key : high;
        low -= first_key, high -= first_key;
        #pragma unroll
        for (int n = 0; n < BN / 8; ++n) {
            #pragma unroll
            for (int e = 0; e < 2; e += WIDTH) {
                const int key = first_key + 8 * n + e;
                at[RANK - 1] = IS_WHOLE || key < keys ? key : keys - WIDTH;
                float acc[WIDTH], value[WIDTH];
                #pragma unroll
                for (int i = 0; i < WIDTH; ++i) acc[i] = s[4 * n + 2 * h + e + i];
                score<true>(p, at, acc, value);
                #pragma unroll
                for (int i = 0; i < WIDTH; ++i) {
                    const int place = 8 * n + e + i;
                    const bool is_seen = IS_WHOLE || (place <= high && (!HAS_FIRST || place >= low));
                    s[4 * n + 2 * h + e + i] = is_seen ? value[i] : -INFINITY;
                }
            }
        }
    }
}

// Of a thread's two rows: the largest score so far, in units of the exponent what powers are below, and the thread's part of
// their sum. `factor`: of all scores, which `score` left.
struct Softmax {
    float factor;
    float most[2] = {-INFINITY, -INFINITY}, base[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};
    float unit, below[2];

    // Whether powers are of differences from the largest score: its multiple is rounded by too much to be their base.
    __device__ __forceinline__ bool is_far(float score) const {
        return !(fabsf(score * (LOG2_E * factor)) < FAR) && score != -INFINITY;
    }
    // Looks for larger scores; `scale`: what earlier powers are to be multiplied by.
    __device__ __forceinline__ void look(float (&s)[BN / 2], float (&scale)[2]) {
        unit = LOG2_E * factor;
        float before[2], next[2];
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float even = s[2 * h], odd = s[2 * h + 1];
            #pragma unroll
            for (int n = 1; n < BN / 8; ++n) even = fmaxf(even, s[4 * n + 2 * h]), odd = fmaxf(odd, s[4 * n + 2 * h + 1]);
            float largest = fmaxf(even, odd);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            before[h] = most[h];
            most[h] = fmaxf(largest, most[h]);
            next[h] = below[h] = most[h] * unit;
            scale[h] = base[h] - next[h];
        }
        if (__any_sync(0xffffffffu, !(fabsf(next[0]) < FAR && fabsf(next[1]) < FAR))) {
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const bool was_far = is_far(before[h]);
                // Where no key was seen yet: powers are 0, and none is no number because of that.
                if (most[h] == -INFINITY) below[h] = 0.0f, scale[h] = -INFINITY;
                else if (is_far(most[h])) {
                    below[h] = 0.0f;
                    scale[h] = was_far ? (before[h] - most[h]) * unit : __fmaf_rn(-most[h], unit, base[h]);
                    #pragma unroll
                    for (int n = 0; n < BN / 8; ++n) s[4 * n + 2 * h] -= most[h], s[4 * n + 2 * h + 1] -= most[h];
                } else if (was_far) scale[h] = __fmaf_rn(before[h], unit, -next[h]);
            }
        }
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            scale[h] = power_of_two(scale[h]);
            base[h] = next[h];
            total[h] *= scale[h];
        }
    }
    // Scores to powers.
    __device__ __forceinline__ void raise(float (&s)[BN / 2]) {
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float evens = total[h], odds = 0.0f;
            #pragma unroll
            for (int n = 0; n < BN / 8; ++n) {
                float &x = s[4 * n + 2 * h], &y = s[4 * n + 2 * h + 1];
                x = power_of_two(__fmaf_rn(x, unit, -below[h]));
                y = power_of_two(__fmaf_rn(y, unit, -below[h]));
                evens += x, odds += y;
            }
            total[h] = evens + odds;
        }
    }
    // Of a row at the end: the largest score, and the sum of powers below it. The base was rounded, but not the score.
    __device__ __forceinline__ float largest(int h) const { return most[h] * factor; }
    __device__ __forceinline__ float sum_below(int h) const {
        return is_far(most[h]) ? total[h] : total[h] * power_of_two(-__fmaf_rn(most[h], LOG2_E * factor, -base[h]));
    }
};

__device__ __forceinline__ void pack(const float (&s)[BN / 2], unsigned int (&powers)[BN / 16][4]) {
    #pragma unroll
    for (int i = 0; i < BN / 16; ++i)
        #pragma unroll
        for (int r = 0; r < 4; ++r) powers[i][r] = packed_pair(s[8 * i + 2 * r], s[8 * i + 2 * r + 1]);
}

__device__ __forceinline__ void scale_down(float (&sum)[COLUMNS / 2], const float (&scale)[2]) {
    #pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) sum[i] *= scale[i / 2 % 2];
}

// ---- results

__device__ __forceinline__ void leave(
    const Params& p, const Tile& t, int row, const Softmax& softmax, const float (&sum)[COLUMNS / 2]
) {
    int at[RANK];
    #pragma unroll
    for (int d = 0; d < RANK - 2; ++d) at[d] = t.at[d];
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const bool is_inside = row + 8 * h < (int)p.rows;
        // Where nothing is the largest, the differences from it are no numbers.
        const bool is_seen = softmax.most[h] != -INFINITY;
        const float share = 1.0f / (is_seen ? softmax.total[h] : NAN);
        const float most = softmax.largest(h), total = is_seen ? softmax.sum_below(h) : NAN;
        at[RANK - 2] = row + 8 * h;
        at[RANK - 1] = 0;
        if (HAS_ROWS && is_inside && threadIdx.x % 4 == 0) conclude(p, at, most, total);
        #pragma unroll
        for (int n = 0; n < COLUMNS_GIVEN / 8; n += WIDTH_OUT < 4 ? 1 : 2) {
            const int column = 8 * n + (int)threadIdx.x % 4 * 2;
            const auto result = [&](int n, int e) { return sum[4 * n + 2 * h + e] * share; };
            float acc[WIDTH_OUT];
            if constexpr (WIDTH_OUT == 4) {
                // Two lanes exchange pairs: each has four neighbours of every other eight columns.
                const bool is_odd = threadIdx.x % 2;
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float here = result(n, e), next = result(n + 1, e);
                    const float other = __shfl_xor_sync(0xffffffffu, is_odd ? here : next, 1);
                    acc[e] = is_odd ? other : here;
                    acc[2 + e] = is_odd ? next : other;
                }
                at[RANK - 1] = is_odd ? column + 6 : column;
                if (is_inside) epilogue(p, at, acc, most, total);
            } else {
                #pragma unroll
                for (int e = 0; e < 2; e += WIDTH_OUT) {
                    at[RANK - 1] = column + e;
                    #pragma unroll
                    for (int i = 0; i < WIDTH_OUT; ++i) acc[i] = result(n, e + i);
                    if (is_inside) epilogue(p, at, acc, most, total);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_attention(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t q_at = smem_addr(memory), k_at = q_at + Q_BYTES, v_at = k_at + STAGES * K_BYTES;
    const smem_addr_t k_full = v_at + STAGES * V_BYTES, k_empty = k_full + 8 * STAGES;
    const smem_addr_t v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
    const smem_addr_t q_full = v_empty + 8 * STAGES, q_empty = q_full + 8;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(k_full, k_empty, GROUPS);
        init_pipeline<STAGES>(v_full, v_empty, GROUPS);
        init_pipeline<1>(q_full, q_empty, GROUPS);
        fence_barrier_init();
        #pragma unroll
        for (int i = 0; i < 3; ++i) prefetch_tensormap(p.maps[i]);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tiles = (int)(p.stack * p.row_tiles);
    // Every other round of tiles is dealt backwards: whoever had the longest one has the shortest one next.
    const auto tile_of = [&](int round) {
        const int block = (int)blockIdx.x, blocks = (int)gridDim.x;
        return round * blocks + (round % 2 ? blocks - 1 - block : block);
    };
    PipelineState<STAGES> k_turn, v_turn;
    PipelineState<1> q_turn;
    pdl_wait();
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            for (int round = 0; tile_of(round) < tiles; ++round) {
                const Tile t(p, tile_of(round));
                if (t.begin >= t.end) continue;
                const auto bring_keys = [&](int block) {
                    mbarrier_wait_parity(k_empty + 8 * k_turn.stage, k_turn.phase ^ 1);
                    mbarrier_expect_tx(k_full + 8 * k_turn.stage, K_BYTES);
                    #pragma unroll
                    for (int i = 0; i < PANELS_Q; ++i)
                        copy_lines(
                            k_at + k_turn.stage * K_BYTES + i * BN * SWIZZLE_BYTES, p.maps[1], k_full + 8 * k_turn.stage, 64 * i, block * BN,
                            t.at, p.k_apart
                        );
                    k_turn.advance();
                };
                const auto bring_values = [&](int block) {
                    mbarrier_wait_parity(v_empty + 8 * v_turn.stage, v_turn.phase ^ 1);
                    mbarrier_expect_tx(v_full + 8 * v_turn.stage, V_BYTES);
                    #pragma unroll
                    for (int i = 0; i < PANELS_V; ++i)
                        copy_lines(
                            v_at + v_turn.stage * V_BYTES + i * BN * SWIZZLE_BYTES, p.maps[2], v_full + 8 * v_turn.stage, 64 * i, block * BN,
                            t.at, p.v_apart
                        );
                    v_turn.advance();
                };
                mbarrier_wait_parity(q_empty, q_turn.phase ^ 1);
                mbarrier_expect_tx(q_full, Q_BYTES);
                #pragma unroll
                for (int i = 0; i < PANELS_Q; ++i)
                    copy_lines(q_at + i * BM * SWIZZLE_BYTES, p.maps[0], q_full, 64 * i, t.row, t.at, p.q_apart);
                q_turn.advance();
                bring_keys(t.end - 1);
                for (int block = t.end - 1; block >= t.begin; --block) {
                    if (block > t.begin) bring_keys(block - 1);
                    bring_values(block);
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int group = warpgroup - 1, next_group = group + 1 < GROUPS ? group + 1 : 0;
        const bool speaks = threadIdx.x % 128 == 0;
        float factor = SCALED ? (float)p.factor : 1.0f;
        if (SCALED) keep_in_register(factor);
        const smem_desc_t q = make_desc<false>(q_at + group * (64 * SWIZZLE_BYTES));
        if (group == GROUPS - 1) give_turn(0);
        for (int round = 0; tile_of(round) < tiles; ++round) {
            const Tile t(p, tile_of(round));
            const int row = t.row + group * 64 + warp * 16 + (int)threadIdx.x % 32 / 4;
            Softmax softmax{factor};
            float sum[COLUMNS / 2];
            #pragma unroll
            for (int i = 0; i < COLUMNS / 2; ++i) sum[i] = 0.0f;
            if (t.begin < t.end) {
                float scale[2];
                unsigned int powers[BN / 16][4];
                const auto is_whole = [&](int block) { return t.whole <= block && block < t.whole_end; };
                mbarrier_wait_parity(q_full, q_turn.phase);
                q_turn.advance();
                mbarrier_wait_parity(k_full + 8 * k_turn.stage, k_turn.phase);
                {
                    float s[BN / 2];
                    await_turn(group);
                    fence_accumulators(s);
                    wgmma_fence();
                    ask_scores(s, q, make_desc<false>(k_at + k_turn.stage * K_BYTES));
                    wgmma_commit();
                    give_turn(next_group);
                    wgmma_wait<0>();
                    fence_accumulators(s);
                    if (speaks) mbarrier_arrive(k_empty + 8 * k_turn.stage);
                    k_turn.advance();
                    if (is_whole(t.end - 1)) score_block<true>(p, t, row, t.end - 1, s);
                    else score_block<false>(p, t, row, t.end - 1, s);
                    softmax.look(s, scale);
                    softmax.raise(s);
                    pack(s, powers);
                }
                // The scores of a block, and the product with the values of the one before it.
                const auto step = [&](auto whole, int block) {
                    float s[BN / 2];
                    mbarrier_wait_parity(k_full + 8 * k_turn.stage, k_turn.phase);
                    await_turn(group);
                    fence_accumulators(s);
                    fence_accumulators(powers);
                    wgmma_fence();
                    ask_scores(s, q, make_desc<false>(k_at + k_turn.stage * K_BYTES));
                    wgmma_commit();
                    scale_down(sum, scale);
                    fence_accumulators(sum);
                    wgmma_fence();
                    mbarrier_wait_parity(v_full + 8 * v_turn.stage, v_turn.phase);
                    ask_results(sum, powers, values_at(v_at + v_turn.stage * V_BYTES));
                    wgmma_commit();
                    give_turn(next_group);
                    wgmma_wait<1>();
                    fence_accumulators(s);
                    if (speaks) mbarrier_arrive(k_empty + 8 * k_turn.stage);
                    k_turn.advance();
                    score_block<decltype(whole)::value>(p, t, row, block, s);
                    softmax.look(s, scale);
                    wgmma_wait<0>();
                    fence_accumulators(sum);
                    fence_accumulators(powers);
                    if (speaks) mbarrier_arrive(v_empty + 8 * v_turn.stage);
                    v_turn.advance();
                    softmax.raise(s);
                    pack(s, powers);
                };
                int block = t.end - 2;
                #pragma unroll 1
                for (; block >= t.begin && !is_whole(block); --block) step(Truth<false>{}, block);
                #pragma unroll 1
                for (; block >= t.begin && block >= t.whole; --block) step(Truth<true>{}, block);
                if constexpr (HAS_FIRST) {
                    #pragma unroll 1
                    for (; block >= t.begin; --block) step(Truth<false>{}, block);
                }
                if (speaks) mbarrier_arrive(q_empty);
                fence_accumulators(scale);
                scale_down(sum, scale);
                mbarrier_wait_parity(v_full + 8 * v_turn.stage, v_turn.phase);
                fence_accumulators(sum);
                fence_accumulators(powers);
                wgmma_fence();
                ask_results(sum, powers, values_at(v_at + v_turn.stage * V_BYTES));
                wgmma_commit();
                #pragma unroll
                for (int h = 0; h < 2; ++h) {
                    softmax.total[h] += __shfl_xor_sync(0xffffffffu, softmax.total[h], 1);
                    softmax.total[h] += __shfl_xor_sync(0xffffffffu, softmax.total[h], 2);
                }
                wgmma_wait<0>();
                fence_accumulators(sum);
                if (speaks) mbarrier_arrive(v_empty + 8 * v_turn.stage);
                v_turn.advance();
            }
            if (tile_of(round + 1) >= tiles) pdl_trigger();
            leave(p, t, row, softmax, sum);
        }
        if (group == 0) await_turn(0);  // every turn that was given is taken
    }
}
