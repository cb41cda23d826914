// FlashAttention forward for sm_90a: o = softmax(score_mod(q k^T)) v, with a generated score_mod.
//
// Tile:       TILE_M rows of q of one head, 64 for each consumer warpgroup. Keys and values come in key tiles of TILE_N, the last
//             visible key tile first. CTAs are persistent.
// Pipeline:   keys and values have STAGES stages each, q has one. TMA bytes complete the `full` barriers, one arrival of each
//             consumer warpgroup completes the `empty` barriers.
// Warp roles: one thread of warpgroup 0 issues TMA. A consumer warpgroup computes Q K^T with both operands in shared memory,
//             keeps the scores in registers, and uses the probabilities as the register operand of P V.
// Softmax:    online. Probabilities are relative to the largest score so far; a larger score rescales the accumulators and sums.
// Overlap:    Q K^T of a key tile is issued before P V of the previous one. Ordered-sequence barriers let one warpgroup compute its
//             softmax while the others use the tensor cores.
// Layout:     128-byte swizzle everywhere; q and k are K-major, v is MN-major. A tensor map has up to five axes.
// Epilogue:   generated. `store_row_stats` stores row maxima and sums, `epilogue` the normalized results.
//
// Required constants (from the generator):
//   RANK                                axes of the tensors, 2 to 5
//   CONSUMER_WARPGROUPS, TILE_N, STAGES TILE_M / 64 (1 to 3), keys of a key tile, and stages of keys and of values
//   HEAD_DIM_PADDED                     elements of a head of q and k, rounded up to a multiple of 16
//   VALUE_DIM, VALUE_DIM_PADDED         elements of a head of v, and the same rounded up to a multiple of 8
//   CONSUMER_REGS, PRODUCER_REGS        registers of a consumer thread and of a producer thread
//   HAS_FIRST_KEY, HAS_LAST_KEY         row r sees no key before r + p.first_key, or none after r + p.last_key
//   STORES_ROW_STATS                    whether `store_row_stats` has results to store
//   SCORE_VEC_WIDTH, OUT_VEC_WIDTH      elements of a call of `score_mod` (1 or 2) and of `epilogue` (1, 2 or 4)
//   SCALES_IN_EXPONENT                  whether p.factor multiplies the scores in the exponent instead of in `score_mod`
//   types Query (of q and k) and Value (of v and the probabilities): half_t or bfloat_t

#include "pdl.cuh"
#include "hopper_pipeline.cuh"

constexpr int TILE_M = 64 * CONSUMER_WARPGROUPS, THREADS = 128 * (CONSUMER_WARPGROUPS + 1);
constexpr int SLABS_QK = (HEAD_DIM_PADDED + 63) / 64, SLABS_V = (VALUE_DIM_PADDED + 63) / 64;  // 128-byte slabs of a head
constexpr int Q_BYTES = SLABS_QK * TILE_M * SWIZZLE_BYTES;
constexpr int K_BYTES = SLABS_QK * TILE_N * SWIZZLE_BYTES, V_BYTES = SLABS_V * TILE_N * SWIZZLE_BYTES;
constexpr float LOG2_E = 1.44269504f;
constexpr float FAR_EXPONENT = 1e6f;  // rounding changes smaller exponents by at most 1/32
static_assert(HEAD_DIM_PADDED % 16 == 0 && TILE_N % 16 == 0 && VALUE_DIM_PADDED % 8 == 0, "MMA steps are whole");
static_assert(2 <= RANK && RANK <= 5, "a tensor map has at most five axes");
static_assert(128 * (PRODUCER_REGS + CONSUMER_WARPGROUPS * CONSUMER_REGS) <= 65536, "setmaxnreg may not exceed the register file");

// ---- Work tiles

template <bool VALUE> struct BoolConstant { static constexpr bool value = VALUE; };

// TILE_M rows of one head. Some row sees the key tiles from `begin` to `end`; every row sees all keys of the key tiles from
// `unmasked_begin` to `unmasked_end`.
struct WorkTile {
    int coord[RANK] = {}, row, begin, end, unmasked_begin, unmasked_end;
    // The raster visits row tiles of `heads_per_raster` heads before it goes on, so that their keys and values stay in L2.
    // With a causal mask later rows see more keys. They come first, so that the last tiles are the short ones.
    __device__ __forceinline__ WorkTile(const Params& p, int number) {
        const int row_tiles = (int)p.row_tiles, raster_heads = (int)p.heads_per_raster;
        const int raster_group = number / (row_tiles * raster_heads);
        const int index_in_group = number - raster_group * (row_tiles * raster_heads);
        const int heads_left = (int)p.stack - raster_group * raster_heads;
        const int heads = heads_left < raster_heads ? heads_left : raster_heads;
        const int row_tile = index_in_group / heads;
        int rem = raster_group * raster_heads + index_in_group - row_tile * heads;
        row = (HAS_LAST_KEY ? row_tiles - 1 - row_tile : row_tile) * TILE_M;
        #pragma unroll
        for (int d = RANK - 3; d >= 0; --d) {
            const int next = rem / (int)p.batch[d];
            coord[d] = rem - next * (int)p.batch[d];
            rem = next;
        }
        const int rows = (int)p.rows, keys = (int)p.keys, last_row = (row + TILE_M < rows ? row + TILE_M : rows) - 1;
        int first = 0, first_unmasked = 0, last = keys, last_unmasked = keys;
        if (HAS_FIRST_KEY) {
            first = row + (int)p.first_key > 0 ? row + (int)p.first_key : 0;
            first_unmasked = last_row + (int)p.first_key > 0 ? last_row + (int)p.first_key : 0;
        }
        if (HAS_LAST_KEY) {
            last = last_row + (int)p.last_key + 1 < keys ? last_row + (int)p.last_key + 1 : keys;
            last_unmasked = row + (int)p.last_key + 1 < keys ? row + (int)p.last_key + 1 : keys;
        }
        begin = first / TILE_N;
        end = last > first ? (last + TILE_N - 1) / TILE_N : begin;
        unmasked_begin = (first_unmasked + TILE_N - 1) / TILE_N;
        unmasked_end = last_unmasked > 0 ? last_unmasked / TILE_N : 0;
    }
};

// ---- TMA loads

// Loads rows from `row` on, of the 128-byte slab that begins with element `first` of a head. Heads are at `coord` divided by
// `broadcast`, because batch indices may share a head.
__device__ __forceinline__ void tma_load_rows(
    smem_addr_t to, const TensorMap& map, smem_addr_t barrier, int first, int row, const int (&coord)[RANK],
    const long long* broadcast
) {
    const auto coordinate = [&](int d) { return coord[d] / (int)broadcast[d]; };
    if constexpr (RANK == 2) tma_load_tile(to, map, barrier, first, row);
    else if constexpr (RANK == 3) tma_load_tile(to, map, barrier, first, row, coordinate(0));
    else if constexpr (RANK == 4) tma_load_tile(to, map, barrier, first, row, coordinate(1), coordinate(0));
    else tma_load_tile(to, map, barrier, first, row, coordinate(2), coordinate(1), coordinate(0));
}

// ---- Matrix products

// The descriptor of the values, which are MN-major: slabs of TILE_N rows.
__device__ __forceinline__ smem_desc_t make_values_desc(smem_addr_t address) {
    const smem_desc_t between_panels = TILE_N * SWIZZLE_BYTES >> 4, between_eights = (8 * SWIZZLE_BYTES) >> 4, swizzled = 1;
    return (smem_desc_t)((address & 0x3FFFF) >> 4) | between_panels << 16 | between_eights << 32 | swizzled << 62;
}
__device__ __forceinline__ void issue_qk(float (&s)[TILE_N / 2], smem_desc_t q, smem_desc_t k) {
    #pragma unroll
    for (int i = 0; i < HEAD_DIM_PADDED / 16; ++i)
        wgmma_ss_scores(
            s, q + (i / 4 * TILE_M * SWIZZLE_BYTES + i % 4 * 32 >> 4),
            k + (i / 4 * TILE_N * SWIZZLE_BYTES + i % 4 * 32 >> 4), i > 0
        );
}
__device__ __forceinline__ void issue_pv(
    float (&accum)[VALUE_DIM_PADDED / 2], const unsigned int (&probs)[TILE_N / 16][4], smem_desc_t v
) {
    #pragma unroll
    for (int i = 0; i < TILE_N / 16; ++i) wgmma_rs(accum, probs[i], v + i * (16 * SWIZZLE_BYTES >> 4), 1);
}

template <int COUNT> __device__ __forceinline__ void fence_accumulators(unsigned int (&x)[COUNT][4]) {
#ifdef __CUDA_ARCH__
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(x[i][j])::"memory");
#endif
}

// Keeps the compiler from converting the number again for each key tile.
__device__ __forceinline__ void keep_in_register(float& x) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+f"(x));
#endif
}

// Ordered-sequence barriers: consumer warpgroups issue their matrix products in turn. Each has a named barrier.
__device__ __forceinline__ void order_wait(int consumer) {
    if (CONSUMER_WARPGROUPS == 1) return;
#ifdef __CUDA_ARCH__
    asm volatile("bar.sync %0, 256;" ::"r"(2 + consumer) : "memory");
#else
    emulated_bar_sync(2 + consumer, 256);
#endif
}
__device__ __forceinline__ void order_arrive(int consumer) {
    if (CONSUMER_WARPGROUPS == 1) return;
#ifdef __CUDA_ARCH__
    asm volatile("bar.arrive %0, 256;" ::"r"(2 + consumer) : "memory");
#else
    emulated_bar_arrive(2 + consumer, 256);
#endif
}

// ---- Online softmax

__device__ __forceinline__ float exp2_approx(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// Packs two probabilities into one word of the A fragment of P V.
__device__ __forceinline__ unsigned int pack_pair(float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned int pair;
    if constexpr (same<Value, half_t>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (unsigned int)narrow<Value>(low).bits | (unsigned int)narrow<Value>(high).bits << 16;
#endif
}

// Applies the generated `score_mod` to Q K^T, for 64 rows and one key tile. Keys outside the tensor, and keys outside the mask
// bounds, get -infinity here; so the unmasked form of `score_mod` leaves the masks out.
template <bool IS_UNMASKED>
__device__ __forceinline__ void apply_score_mod(
    const Params& p, const WorkTile& tile, int row, int key_tile, float (&s)[TILE_N / 2]
) {
    const int rows = (int)p.rows, keys = (int)p.keys, first_key = key_tile * TILE_N + (int)threadIdx.x % 4 * 2;
    int coord[RANK];
    #pragma unroll
    for (int d = 0; d < RANK - 2; ++d) coord[d] = tile.coord[d];
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        coord[RANK - 2] = row + 8 * h < rows ? row + 8 * h : rows - 1;
        int low = 0, high = keys - 1;
        if (HAS_FIRST_KEY) low = row + 8 * h + (int)p.first_key;
        if (HAS_LAST_KEY) high = row + 8 * h + (int)p.last_key < high ? row + 8 * h + (int)p.last_key : high;
        low -= first_key, high -= first_key;
        #pragma unroll
        for (int n = 0; n < TILE_N / 8; ++n) {
            #pragma unroll
            for (int e = 0; e < 2; e += SCORE_VEC_WIDTH) {
                const int key = first_key + 8 * n + e;
                coord[RANK - 1] = IS_UNMASKED || key < keys ? key : keys - SCORE_VEC_WIDTH;
                float acc[SCORE_VEC_WIDTH], value[SCORE_VEC_WIDTH];
                #pragma unroll
                for (int i = 0; i < SCORE_VEC_WIDTH; ++i) acc[i] = s[4 * n + 2 * h + e + i];
                score_mod<true>(p, coord, acc, value);
                #pragma unroll
                for (int i = 0; i < SCORE_VEC_WIDTH; ++i) {
                    const int key_offset = 8 * n + e + i;
                    const bool is_visible = IS_UNMASKED || (key_offset <= high && (!HAS_FIRST_KEY || key_offset >= low));
                    s[4 * n + 2 * h + e + i] = is_visible ? value[i] : -INFINITY;
                }
            }
        }
    }
}

// Online softmax of a thread's two rows: the largest score so far, the exponent that probabilities are relative to, and this
// thread's part of the row sum. `factor` is the scale of all scores, which `score_mod` leaves out.
struct OnlineSoftmax {
    float factor;
    float row_max[2] = {-INFINITY, -INFINITY}, exponent_base[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.0f, 0.0f};
    float log2e_factor, subtrahend[2];

    // Whether a score is so large that the rounding of its exponent would be visible. Then probabilities are computed from
    // differences of scores.
    __device__ __forceinline__ bool is_far(float x) const {
        return !(fabsf(x * (LOG2_E * factor)) < FAR_EXPONENT) && x != -INFINITY;
    }
    // Updates the row maxima with the scores of a key tile. `scale` is the factor that rescales earlier sums.
    __device__ __forceinline__ void update_max(float (&s)[TILE_N / 2], float (&scale)[2]) {
        log2e_factor = LOG2_E * factor;
        float previous_max[2], next[2];
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float even = s[2 * h], odd = s[2 * h + 1];
            #pragma unroll
            for (int n = 1; n < TILE_N / 8; ++n) even = fmaxf(even, s[4 * n + 2 * h]), odd = fmaxf(odd, s[4 * n + 2 * h + 1]);
            float largest = fmaxf(even, odd);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
            previous_max[h] = row_max[h];
            row_max[h] = fmaxf(largest, row_max[h]);
            next[h] = subtrahend[h] = row_max[h] * log2e_factor;
            scale[h] = exponent_base[h] - next[h];
        }
        if (__any_sync(0xffffffffu, !(fabsf(next[0]) < FAR_EXPONENT && fabsf(next[1]) < FAR_EXPONENT))) {
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const bool was_far = is_far(previous_max[h]);
                // No key is visible yet: probabilities are 0, and -infinity minus -infinity must not give NaN.
                if (row_max[h] == -INFINITY) subtrahend[h] = 0.0f, scale[h] = -INFINITY;
                else if (is_far(row_max[h])) {
                    subtrahend[h] = 0.0f;
                    scale[h] = was_far ? (previous_max[h] - row_max[h]) * log2e_factor
                                       : __fmaf_rn(-row_max[h], log2e_factor, exponent_base[h]);
                    #pragma unroll
                    for (int n = 0; n < TILE_N / 8; ++n) s[4 * n + 2 * h] -= row_max[h], s[4 * n + 2 * h + 1] -= row_max[h];
                } else if (was_far) scale[h] = __fmaf_rn(previous_max[h], log2e_factor, -next[h]);
            }
        }
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            scale[h] = exp2_approx(scale[h]);
            exponent_base[h] = next[h];
            row_sum[h] *= scale[h];
        }
    }
    // Replaces scores by probabilities, and adds them to the row sums.
    __device__ __forceinline__ void exponentiate(float (&s)[TILE_N / 2]) {
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float evens = row_sum[h], odds = 0.0f;
            #pragma unroll
            for (int n = 0; n < TILE_N / 8; ++n) {
                float &x = s[4 * n + 2 * h], &y = s[4 * n + 2 * h + 1];
                x = exp2_approx(__fmaf_rn(x, log2e_factor, -subtrahend[h]));
                y = exp2_approx(__fmaf_rn(y, log2e_factor, -subtrahend[h]));
                evens += x, odds += y;
            }
            row_sum[h] = evens + odds;
        }
    }
    // Final row statistics: the largest score, and the sum of exponentials relative to it. The exponent of the probabilities was
    // rounded, while the largest score is exact, so the sum is corrected.
    __device__ __forceinline__ float largest(int h) const { return row_max[h] * factor; }
    __device__ __forceinline__ float sum_of_row(int h) const {
        return is_far(row_max[h]) ? row_sum[h]
                                  : row_sum[h] * exp2_approx(-__fmaf_rn(row_max[h], LOG2_E * factor, -exponent_base[h]));
    }
};

__device__ __forceinline__ void pack_probs(const float (&s)[TILE_N / 2], unsigned int (&probs)[TILE_N / 16][4]) {
    #pragma unroll
    for (int i = 0; i < TILE_N / 16; ++i)
        #pragma unroll
        for (int r = 0; r < 4; ++r) probs[i][r] = pack_pair(s[8 * i + 2 * r], s[8 * i + 2 * r + 1]);
}

__device__ __forceinline__ void rescale(float (&accum)[VALUE_DIM_PADDED / 2], const float (&scale)[2]) {
    #pragma unroll
    for (int i = 0; i < VALUE_DIM_PADDED / 2; ++i) accum[i] *= scale[i / 2 % 2];
}

// ---- Epilogue

__device__ __forceinline__ void epilogue_store(
    const Params& p, const WorkTile& tile, int row, const OnlineSoftmax& softmax, const float (&accum)[VALUE_DIM_PADDED / 2]
) {
    int coord[RANK];
    #pragma unroll
    for (int d = 0; d < RANK - 2; ++d) coord[d] = tile.coord[d];
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        const bool is_inside = row + 8 * h < (int)p.rows;
        // A row without visible keys has NaN, as the reference has.
        const bool is_visible = softmax.row_max[h] != -INFINITY;
        const float inverse_sum = 1.0f / (is_visible ? softmax.row_sum[h] : NAN);
        const float row_max = softmax.largest(h), row_sum = is_visible ? softmax.sum_of_row(h) : NAN;
        coord[RANK - 2] = row + 8 * h;
        coord[RANK - 1] = 0;
        if (STORES_ROW_STATS && is_inside && threadIdx.x % 4 == 0) store_row_stats(p, coord, row_max, row_sum);
        #pragma unroll
        for (int n = 0; n < VALUE_DIM / 8; n += OUT_VEC_WIDTH < 4 ? 1 : 2) {
            const int column = 8 * n + (int)threadIdx.x % 4 * 2;
            const auto result = [&](int n, int e) { return accum[4 * n + 2 * h + e] * inverse_sum; };
            float acc[OUT_VEC_WIDTH];
            if constexpr (OUT_VEC_WIDTH == 4) {
                // Two lanes exchange pairs, so that each has four contiguous columns of every other eight.
                const bool is_odd = threadIdx.x % 2;
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float here = result(n, e), next = result(n + 1, e);
                    const float other = __shfl_xor_sync(0xffffffffu, is_odd ? here : next, 1);
                    acc[e] = is_odd ? other : here;
                    acc[2 + e] = is_odd ? next : other;
                }
                coord[RANK - 1] = is_odd ? column + 6 : column;
                if (is_inside) epilogue(p, coord, acc, row_max, row_sum);
            } else {
                #pragma unroll
                for (int e = 0; e < 2; e += OUT_VEC_WIDTH) {
                    coord[RANK - 1] = column + e;
                    #pragma unroll
                    for (int i = 0; i < OUT_VEC_WIDTH; ++i) acc[i] = result(n, e + i);
                    if (is_inside) epilogue(p, coord, acc, row_max, row_sum);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) hopper_attention(const __grid_constant__ Params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const smem_addr_t q_smem = smem_addr(memory), k_smem = q_smem + Q_BYTES, v_smem = k_smem + STAGES * K_BYTES;
    const smem_addr_t k_full = v_smem + STAGES * V_BYTES, k_empty = k_full + 8 * STAGES;
    const smem_addr_t v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
    const smem_addr_t q_full = v_empty + 8 * STAGES, q_empty = q_full + 8;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(k_full, k_empty, CONSUMER_WARPGROUPS);
        init_pipeline<STAGES>(v_full, v_empty, CONSUMER_WARPGROUPS);
        init_pipeline<1>(q_full, q_empty, CONSUMER_WARPGROUPS);
        fence_barrier_init();
        #pragma unroll
        for (int i = 0; i < 3; ++i) prefetch_tensormap(p.maps[i]);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32 % 4, 0);
    const int tiles = (int)(p.stack * p.row_tiles);
    // Every other round assigns tiles in reverse, so that the CTA with the longest tile gets the shortest one next.
    const auto tile_index = [&](int round) {
        const int cta = (int)blockIdx.x, ctas = (int)gridDim.x;
        return round * ctas + (round % 2 ? ctas - 1 - cta : cta);
    };
    PipelineState<STAGES> k_pipe, v_pipe;
    PipelineState<1> q_pipe;
    pdl_wait();
    if (warpgroup == 0) {
        dealloc_registers<PRODUCER_REGS>();
        if (warp == 0 && elect_one()) {
            for (int round = 0; tile_index(round) < tiles; ++round) {
                const WorkTile tile(p, tile_index(round));
                if (tile.begin >= tile.end) continue;
                const auto load_keys = [&](int key_tile) {
                    mbarrier_wait_parity(k_empty + 8 * k_pipe.stage, k_pipe.phase ^ 1);
                    mbarrier_expect_tx(k_full + 8 * k_pipe.stage, K_BYTES);
                    #pragma unroll
                    for (int i = 0; i < SLABS_QK; ++i)
                        tma_load_rows(
                            k_smem + k_pipe.stage * K_BYTES + i * TILE_N * SWIZZLE_BYTES, p.maps[1], k_full + 8 * k_pipe.stage,
                            64 * i, key_tile * TILE_N, tile.coord, p.k_map_broadcast
                        );
                    k_pipe.advance();
                };
                const auto load_values = [&](int key_tile) {
                    mbarrier_wait_parity(v_empty + 8 * v_pipe.stage, v_pipe.phase ^ 1);
                    mbarrier_expect_tx(v_full + 8 * v_pipe.stage, V_BYTES);
                    #pragma unroll
                    for (int i = 0; i < SLABS_V; ++i)
                        tma_load_rows(
                            v_smem + v_pipe.stage * V_BYTES + i * TILE_N * SWIZZLE_BYTES, p.maps[2], v_full + 8 * v_pipe.stage,
                            64 * i, key_tile * TILE_N, tile.coord, p.v_map_broadcast
                        );
                    v_pipe.advance();
                };
                mbarrier_wait_parity(q_empty, q_pipe.phase ^ 1);
                mbarrier_expect_tx(q_full, Q_BYTES);
                #pragma unroll
                for (int i = 0; i < SLABS_QK; ++i)
                    tma_load_rows(
                        q_smem + i * TILE_M * SWIZZLE_BYTES, p.maps[0], q_full, 64 * i, tile.row, tile.coord, p.q_map_broadcast
                    );
                q_pipe.advance();
                load_keys(tile.end - 1);
                for (int key_tile = tile.end - 1; key_tile >= tile.begin; --key_tile) {
                    if (key_tile > tile.begin) load_keys(key_tile - 1);
                    load_values(key_tile);
                }
            }
        }
    } else {
        alloc_registers<CONSUMER_REGS>();
        const int consumer = warpgroup - 1, next_consumer = consumer + 1 < CONSUMER_WARPGROUPS ? consumer + 1 : 0;
        const bool releases = threadIdx.x % 128 == 0;
        float factor = SCALES_IN_EXPONENT ? (float)p.factor : 1.0f;
        if (SCALES_IN_EXPONENT) keep_in_register(factor);
        const smem_desc_t q = make_desc<false>(q_smem + consumer * (64 * SWIZZLE_BYTES));
        if (consumer == CONSUMER_WARPGROUPS - 1) order_arrive(0);
        for (int round = 0; tile_index(round) < tiles; ++round) {
            const WorkTile tile(p, tile_index(round));
            const int row = tile.row + consumer * 64 + warp * 16 + (int)threadIdx.x % 32 / 4;
            OnlineSoftmax softmax{factor};
            float accum[VALUE_DIM_PADDED / 2];
            #pragma unroll
            for (int i = 0; i < VALUE_DIM_PADDED / 2; ++i) accum[i] = 0.0f;
            if (tile.begin < tile.end) {
                float scale[2];
                unsigned int probs[TILE_N / 16][4];
                const auto is_unmasked = [&](int key_tile) {
                    return tile.unmasked_begin <= key_tile && key_tile < tile.unmasked_end;
                };
                mbarrier_wait_parity(q_full, q_pipe.phase);
                q_pipe.advance();
                mbarrier_wait_parity(k_full + 8 * k_pipe.stage, k_pipe.phase);
                {
                    float s[TILE_N / 2];
                    order_wait(consumer);
                    fence_accumulators(s);
                    wgmma_fence();
                    issue_qk(s, q, make_desc<false>(k_smem + k_pipe.stage * K_BYTES));
                    wgmma_commit();
                    order_arrive(next_consumer);
                    wgmma_wait<0>();
                    fence_accumulators(s);
                    if (releases) mbarrier_arrive(k_empty + 8 * k_pipe.stage);
                    k_pipe.advance();
                    if (is_unmasked(tile.end - 1)) apply_score_mod<true>(p, tile, row, tile.end - 1, s);
                    else apply_score_mod<false>(p, tile, row, tile.end - 1, s);
                    softmax.update_max(s, scale);
                    softmax.exponentiate(s);
                    pack_probs(s, probs);
                }
                // Q K^T of one key tile overlaps P V of the previous key tile.
                const auto key_tile_step = [&](auto is_tile_unmasked, int key_tile) {
                    float s[TILE_N / 2];
                    mbarrier_wait_parity(k_full + 8 * k_pipe.stage, k_pipe.phase);
                    order_wait(consumer);
                    fence_accumulators(s);
                    fence_accumulators(probs);
                    wgmma_fence();
                    issue_qk(s, q, make_desc<false>(k_smem + k_pipe.stage * K_BYTES));
                    wgmma_commit();
                    rescale(accum, scale);
                    fence_accumulators(accum);
                    wgmma_fence();
                    mbarrier_wait_parity(v_full + 8 * v_pipe.stage, v_pipe.phase);
                    issue_pv(accum, probs, make_values_desc(v_smem + v_pipe.stage * V_BYTES));
                    wgmma_commit();
                    order_arrive(next_consumer);
                    wgmma_wait<1>();
                    fence_accumulators(s);
                    if (releases) mbarrier_arrive(k_empty + 8 * k_pipe.stage);
                    k_pipe.advance();
                    apply_score_mod<decltype(is_tile_unmasked)::value>(p, tile, row, key_tile, s);
                    softmax.update_max(s, scale);
                    wgmma_wait<0>();
                    fence_accumulators(accum);
                    fence_accumulators(probs);
                    if (releases) mbarrier_arrive(v_empty + 8 * v_pipe.stage);
                    v_pipe.advance();
                    softmax.exponentiate(s);
                    pack_probs(s, probs);
                };
                int key_tile = tile.end - 2;
                #pragma unroll 1
                for (; key_tile >= tile.begin && !is_unmasked(key_tile); --key_tile) key_tile_step(BoolConstant<false>{}, key_tile);
                #pragma unroll 1
                for (; key_tile >= tile.begin && key_tile >= tile.unmasked_begin; --key_tile)
                    key_tile_step(BoolConstant<true>{}, key_tile);
                if constexpr (HAS_FIRST_KEY) {
                    #pragma unroll 1
                    for (; key_tile >= tile.begin; --key_tile) key_tile_step(BoolConstant<false>{}, key_tile);
                }
                if (releases) mbarrier_arrive(q_empty);
                fence_accumulators(scale);
                rescale(accum, scale);
                mbarrier_wait_parity(v_full + 8 * v_pipe.stage, v_pipe.phase);
                fence_accumulators(accum);
                fence_accumulators(probs);
                wgmma_fence();
                issue_pv(accum, probs, make_values_desc(v_smem + v_pipe.stage * V_BYTES));
                wgmma_commit();
                #pragma unroll
                for (int h = 0; h < 2; ++h) {
                    softmax.row_sum[h] += __shfl_xor_sync(0xffffffffu, softmax.row_sum[h], 1);
                    softmax.row_sum[h] += __shfl_xor_sync(0xffffffffu, softmax.row_sum[h], 2);
                }
                wgmma_wait<0>();
                fence_accumulators(accum);
                if (releases) mbarrier_arrive(v_empty + 8 * v_pipe.stage);
                v_pipe.advance();
            }
            if (tile_index(round + 1) >= tiles) pdl_trigger();
            epilogue_store(p, tile, row, softmax, accum);
        }
        if (consumer == 0) order_wait(0);  // consumes the last arrival, so that the barrier is balanced
    }
}
