// FlashAttention forward on mma.sync: o = softmax(score_mod(q k^T)) v, with a generated score_mod.
//
// Tile:       TILE_M rows of q of one head for each CTA; keys and values come in key tiles of TILE_N. A warp has 16 rows, or a
//             multiple of 16.
// Pipeline:   cp.async. The next keys arrive during the softmax and P V, the values of this key tile during Q K^T.
// Warp roles: all warps do the same. Scores stay in registers: the accumulators of Q K^T have the layout of the A fragments
//             of P V.
// Softmax:    online. Probabilities are relative to the largest score so far; a larger score rescales the accumulators and sums.
// Layout:     rows in shared memory are padded by 16 bytes; heads are filled up with zeros.
// Epilogue:   generated. `store_row_stats` stores row maxima and sums, `epilogue` the normalized results.
//
// Required constants (from the generator):
//   RANK                                axes of the tensors, at least 2
//   TILE_M, TILE_N, THREADS             rows and keys of a tile (TILE_N is a multiple of 16), threads of a CTA
//   CTAS_PER_SM                         CTAs that a multiprocessor should run at the same time
//   HEAD_DIM, HEAD_DIM_PADDED           elements of a head of q and k, and the same rounded up to a multiple of 16
//   VALUE_DIM, VALUE_DIM_PADDED         elements of a head of v, and the same rounded up to a multiple of 16
//   Q_IN_REGISTERS                      whether the fragments of q stay in registers for all key tiles
//   HAS_FIRST_KEY, HAS_LAST_KEY         row r sees no key before r + p.first_key, or none after r + p.last_key
//   STORES_ROW_STATS                    whether `store_row_stats` has results to store
//   SCORE_VEC_WIDTH, OUT_VEC_WIDTH      elements of a call of `score_mod` and of `epilogue` (1 or 2)
//   types Query (of q and k) and Value (of v and the probabilities): half_t or bfloat_t

#include "pdl.cuh"
#include "direct_copy.cuh"
#include "ldmatrix.cuh"
#include "mma.cuh"

constexpr int WARPS = THREADS / 32, MMA_TILES_M = TILE_M / WARPS / 16;  // 16-row MMA tiles of a warp
constexpr int MMA_TILES_N = TILE_N / 8, MMA_TILES_V = VALUE_DIM_PADDED / 8;
// Bytes of a row: an odd multiple of 16, so that ldmatrix has no bank conflicts.
constexpr int QK_PITCH = HEAD_DIM_PADDED * 2 + 16, V_PITCH = VALUE_DIM_PADDED * 2 + 16;
constexpr int Q_BYTES = TILE_M * QK_PITCH, K_BYTES = TILE_N * QK_PITCH;
constexpr float LOG2_E = 1.44269504f;
static_assert(TILE_M % (16 * WARPS) == 0 && TILE_N % 16 == 0, "MMA tiles are whole");
static_assert(HEAD_DIM_PADDED % 16 == 0 && VALUE_DIM_PADDED % 16 == 0, "MMA steps are whole");

// Copies ROWS rows of a head asynchronously. A row has DIM elements, and zeros up to DIM_PADDED.
template <int ROWS, int DIM, int DIM_PADDED>
__device__ __forceinline__ void load_rows_async(unsigned char* to, const void* from, long long row_stride, int rows_left) {
    constexpr int VECS = DIM_PADDED / 8;
    #pragma unroll
    for (int first = 0; first < ROWS * VECS; first += THREADS) {
        const int i = first + (int)threadIdx.x, row = i / VECS, vec = i % VECS;
        if (ROWS * VECS % THREADS && i >= ROWS * VECS) break;
        const bool is_inside = row < rows_left && (DIM == DIM_PADDED || vec * 8 < DIM);
        const unsigned char* const source = (const unsigned char*)from + (is_inside ? row * row_stride * 2 + vec * 16 : 0);
        cp_async_zfill<16>(to + row * (DIM_PADDED * 2 + 16) + vec * 16, source, is_inside);
    }
}

template <class T> __device__ __forceinline__ unsigned int pack_pair(float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned int pair;
    if constexpr (same<T, half_t>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (unsigned int)narrow<T>(low).bits | (unsigned int)narrow<T>(high).bits << 16;
#endif
}

// Applies the generated `score_mod` to the scores of two neighbouring keys. Keys outside the tensor get -infinity.
template <bool IS_UNMASKED>
__device__ __forceinline__ void apply_score_mod(
    const Params& p, int (&coord)[RANK], int row, int key, float& first, float& second
) {
    const int keys = (int)p.keys;
    coord[RANK - 2] = row;
    float acc[2] = {first, second}, value[2];
    if constexpr (SCORE_VEC_WIDTH == 2) {
        coord[RANK - 1] = IS_UNMASKED || key < keys ? key : keys - 2;
        score_mod<IS_UNMASKED>(p, coord, acc, value);
    } else {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            coord[RANK - 1] = IS_UNMASKED || key + e < keys ? key + e : keys - 1;
            const float acc_one[1] = {acc[e]};
            float value_one[1];
            score_mod<IS_UNMASKED>(p, coord, acc_one, value_one);
            value[e] = value_one[0];
        }
    }
    first = IS_UNMASKED || key < keys ? value[0] : -INFINITY;
    second = IS_UNMASKED || key + 1 < keys ? value[1] : -INFINITY;
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) mma_attention(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char *const q_smem = memory, *const k_smem = memory + Q_BYTES, *const v_smem = k_smem + K_BYTES;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group_row = lane / 4, quad_lane = lane % 4;

    // Neighbouring CTAs have one head, so that its keys stay in L2. With a causal mask later rows see more keys; they come first.
    const int rows = (int)p.rows, keys = (int)p.keys, row_tiles = (rows + TILE_M - 1) / TILE_M;
    const int row_tile = (int)(blockIdx.x % (unsigned int)row_tiles);
    const int row0 = (HAS_LAST_KEY ? row_tiles - 1 - row_tile : row_tile) * TILE_M;
    int coord[RANK];
    long long rem = blockIdx.x / (unsigned int)row_tiles, q_offset = row0 * p.q_row_stride, k_offset = 0, v_offset = 0;
    #pragma unroll
    for (int d = RANK - 3; d >= 0; --d) {
        const int i = coord[d] = (int)(rem % p.batch[d]);
        rem /= p.batch[d];
        q_offset += i / (int)p.q_broadcast[d] * p.q_batch[d];
        k_offset += i / (int)p.k_broadcast[d] * p.k_batch[d];
        v_offset += i / (int)p.v_broadcast[d] * p.v_batch[d];
    }
    // The keys that some row of this CTA sees.
    const int last_row = (row0 + TILE_M < rows ? row0 + TILE_M : rows) - 1;
    int key_begin = 0, key_end = keys;
    if (HAS_FIRST_KEY) key_begin = (int)(row0 + p.first_key > 0 ? row0 + p.first_key : 0) / TILE_N * TILE_N;
    if (HAS_LAST_KEY) key_end = (int)(last_row + p.last_key + 1 < keys ? last_row + p.last_key + 1 : keys);

    float accum[MMA_TILES_M][MMA_TILES_V][4], row_max[MMA_TILES_M][2], row_sum[MMA_TILES_M][2];
    #pragma unroll
    for (int i = 0; i < MMA_TILES_M; ++i) {
        #pragma unroll
        for (int n = 0; n < MMA_TILES_V; ++n)
            #pragma unroll
            for (int e = 0; e < 4; ++e) accum[i][n][e] = 0.0f;
        row_max[i][0] = row_max[i][1] = -INFINITY;
        row_sum[i][0] = row_sum[i][1] = 0.0f;
    }
    // This lane's ldmatrix offsets in q, k and v. The loads of v transpose.
    const int r = lane % 8, low = lane / 8 % 2, high = lane / 16, warp_row = warp * MMA_TILES_M * 16;
    const int q_fragment = (warp_row + low * 8 + r) * QK_PITCH + high * 16, k_fragment = (high * 8 + r) * QK_PITCH + low * 16;
    const int v_fragment = (low * 8 + r) * V_PITCH + high * 16;

    pdl_wait();
    const Query* const head_q = p.q + q_offset;
    const Query* const head_k = p.k + k_offset;
    const Value* const head_v = p.v + v_offset;
    load_rows_async<TILE_M, HEAD_DIM, HEAD_DIM_PADDED>(q_smem, head_q, p.q_row_stride, rows - row0);
    if (key_begin < key_end)
        load_rows_async<TILE_N, HEAD_DIM, HEAD_DIM_PADDED>(
            k_smem, head_k + key_begin * p.k_row_stride, p.k_row_stride, keys - key_begin
        );
    cp_async_commit();

    unsigned int q_fragments[Q_IN_REGISTERS ? MMA_TILES_M : 1][Q_IN_REGISTERS ? HEAD_DIM_PADDED / 16 : 1][4];
    #pragma unroll 1
    for (int key0 = key_begin; key0 < key_end; key0 += TILE_N) {
        cp_async_wait<0>();
        __syncthreads();  // the keys have arrived, and all warps have read the previous values
        load_rows_async<TILE_N, VALUE_DIM, VALUE_DIM_PADDED>(v_smem, head_v + key0 * p.v_row_stride, p.v_row_stride, keys - key0);
        cp_async_commit();
        if (Q_IN_REGISTERS && key0 == key_begin) {
            #pragma unroll
            for (int i = 0; i < MMA_TILES_M; ++i)
                #pragma unroll
                for (int k = 0; k < HEAD_DIM_PADDED / 16; ++k)
                    ldmatrix_x4<false>(q_fragments[i][k], q_smem, q_fragment + i * 16 * QK_PITCH + k * 32);
        }

        float s[MMA_TILES_M][MMA_TILES_N][4];
        #pragma unroll
        for (int i = 0; i < MMA_TILES_M; ++i)
            #pragma unroll
            for (int n = 0; n < MMA_TILES_N; ++n)
                #pragma unroll
                for (int e = 0; e < 4; ++e) s[i][n][e] = 0.0f;
        #pragma unroll
        for (int k = 0; k < HEAD_DIM_PADDED / 16; ++k) {
            unsigned int a[MMA_TILES_M][4];
            #pragma unroll
            for (int i = 0; i < MMA_TILES_M; ++i) {
                if constexpr (Q_IN_REGISTERS) {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) a[i][e] = q_fragments[i][k][e];
                } else ldmatrix_x4<false>(a[i], q_smem, q_fragment + i * 16 * QK_PITCH + k * 32);
            }
            #pragma unroll
            for (int n = 0; n < MMA_TILES_N / 2; ++n) {
                unsigned int b[4];
                ldmatrix_x4<false>(b, k_smem, k_fragment + n * 16 * QK_PITCH + k * 32);
                #pragma unroll
                for (int i = 0; i < MMA_TILES_M; ++i) {
                    multiply_warp<Query, Query>(s[i][2 * n], a[i], b[0], b[1]);
                    multiply_warp<Query, Query>(s[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
        cp_async_wait<0>();
        __syncthreads();  // the values have arrived, and all warps have read the keys
        if (key0 + TILE_N < key_end)
            load_rows_async<TILE_N, HEAD_DIM, HEAD_DIM_PADDED>(
                k_smem, head_k + (key0 + TILE_N) * p.k_row_stride, p.k_row_stride, keys - key0 - TILE_N
            );
        cp_async_commit();

        const bool is_unmasked = key0 + TILE_N <= keys && (!HAS_LAST_KEY || key0 + TILE_N - 1 <= row0 + p.last_key) &&
                              (!HAS_FIRST_KEY || key0 >= last_row + p.first_key);
        #pragma unroll
        for (int i = 0; i < MMA_TILES_M; ++i) {
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int unclamped_row = row0 + warp_row + i * 16 + h * 8 + group_row;
                const int row = unclamped_row < rows ? unclamped_row : rows - 1;
                if (is_unmasked) {
                    #pragma unroll
                    for (int n = 0; n < MMA_TILES_N; ++n)
                        apply_score_mod<true>(p, coord, row, key0 + n * 8 + 2 * quad_lane, s[i][n][2 * h], s[i][n][2 * h + 1]);
                } else {
                    #pragma unroll
                    for (int n = 0; n < MMA_TILES_N; ++n)
                        apply_score_mod<false>(p, coord, row, key0 + n * 8 + 2 * quad_lane, s[i][n][2 * h], s[i][n][2 * h + 1]);
                }
                float new_max = row_max[i][h];
                #pragma unroll
                for (int n = 0; n < MMA_TILES_N; ++n) new_max = fmaxf(new_max, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
                new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 1));
                new_max = fmaxf(new_max, __shfl_xor_sync(~0u, new_max, 2));
                // No key is visible yet: probabilities are 0, and -infinity minus -infinity must not give NaN.
                const float max_or_zero = new_max == -INFINITY ? 0.0f : new_max;
                const float scale = approx_exp2((row_max[i][h] - max_or_zero) * LOG2_E);
                row_max[i][h] = new_max;
                float tile_sum = 0.0f;
                #pragma unroll
                for (int n = 0; n < MMA_TILES_N; ++n) {
                    #pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; ++e) {
                        s[i][n][e] = approx_exp2((s[i][n][e] - max_or_zero) * LOG2_E);
                        tile_sum += s[i][n][e];
                    }
                }
                row_sum[i][h] = row_sum[i][h] * scale + tile_sum;
                #pragma unroll
                for (int n = 0; n < MMA_TILES_V; ++n) accum[i][n][2 * h] *= scale, accum[i][n][2 * h + 1] *= scale;
            }
        }
        #pragma unroll
        for (int k = 0; k < TILE_N / 16; ++k) {
            unsigned int a[MMA_TILES_M][4];
            #pragma unroll
            for (int i = 0; i < MMA_TILES_M; ++i)
                #pragma unroll
                for (int e = 0; e < 4; ++e)
                    a[i][e] = pack_pair<Value>(s[i][2 * k + e / 2][e % 2 * 2], s[i][2 * k + e / 2][e % 2 * 2 + 1]);
            #pragma unroll
            for (int n = 0; n < MMA_TILES_V / 2; ++n) {
                unsigned int b[4];
                ldmatrix_x4<true>(b, v_smem, v_fragment + k * 16 * V_PITCH + n * 32);
                #pragma unroll
                for (int i = 0; i < MMA_TILES_M; ++i) {
                    multiply_warp<Value, Value>(accum[i][2 * n], a[i], b[0], b[1]);
                    multiply_warp<Value, Value>(accum[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
    cp_async_wait<0>();
    pdl_trigger();

    #pragma unroll
    for (int i = 0; i < MMA_TILES_M; ++i) {
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float full_sum = row_sum[i][h];
            full_sum += __shfl_xor_sync(~0u, full_sum, 1);
            full_sum += __shfl_xor_sync(~0u, full_sum, 2);
            const int row = row0 + warp_row + i * 16 + h * 8 + group_row;
            if (row >= rows) continue;
            if (row_max[i][h] == -INFINITY) full_sum = NAN;  // a row without visible keys has NaN, as the reference has
            coord[RANK - 2] = row;
            coord[RANK - 1] = 0;
            if (STORES_ROW_STATS && quad_lane == 0) store_row_stats(p, coord, row_max[i][h], full_sum);
            const float inverse_sum = 1.0f / full_sum;
            #pragma unroll
            for (int n = 0; n < VALUE_DIM / 8; ++n) {
                const float result[2] = {accum[i][n][2 * h] * inverse_sum, accum[i][n][2 * h + 1] * inverse_sum};
                #pragma unroll
                for (int e = 0; e < 2; e += OUT_VEC_WIDTH) {
                    coord[RANK - 1] = n * 8 + 2 * quad_lane + e;
                    float acc[OUT_VEC_WIDTH];
                    #pragma unroll
                    for (int c = 0; c < OUT_VEC_WIDTH; ++c) acc[c] = result[e + c];
                    epilogue(p, coord, acc, row_max[i][h], full_sum);
                }
            }
        }
    }
}
