// Attention on tensor cores (mma.sync): o = softmax(f(q k)) v, where f is whatever stands between the first product and the
// softmax (the generated `score`). A block has BM rows of one head and goes through the keys, BN at a time, with the largest
// score so far and the sum of powers below it for each row; when a larger one comes, what was summed is scaled down.
//
// A warp has 16 rows, or several times that. Its scores stay in registers: as the first product's results lie, the second
// one takes them as its left operand. Keys of the next step arrive during the softmax and the second product, values during
// the first one.

constexpr int WARPS = THREADS / 32, TILES = BM / WARPS / 16;  // of rows, for each warp
constexpr int KEY_TILES = BN / 8, COLUMN_TILES = COLUMNS / 8;
constexpr int PITCH = DEPTH * 2 + 16, PITCH_V = COLUMNS * 2 + 16;  // bytes: an odd number of 16s, so that rows differ in banks
constexpr int Q_BYTES = BM * PITCH, K_BYTES = BN * PITCH;
constexpr float LOG2_E = 1.44269504f;
static_assert(BM % (16 * WARPS) == 0 && BN % 16 == 0 && DEPTH % 16 == 0 && COLUMNS % 16 == 0, "whole products");

// LINES of a head behind the thread's back; LENGTH of WHOLE elements, of which the rest is 0.
template <int LINES, int LENGTH, int WHOLE>
__device__ __forceinline__ void fetch(unsigned char* to, const void* from, long long step, int left) {
    constexpr int CHUNKS = WHOLE / 8;
    #pragma unroll
    for (int first = 0; first < LINES * CHUNKS; first += THREADS) {
        const int i = first + (int)threadIdx.x, line = i / CHUNKS, chunk = i % CHUNKS;
        if (LINES * CHUNKS % THREADS && i >= LINES * CHUNKS) break;
        const bool inside = line < left && (LENGTH == WHOLE || chunk * 8 < LENGTH);
        const unsigned char* const source = (const unsigned char*)from + (inside ? line * step * 2 + chunk * 16 : 0);
        copy_async<16>(to + line * (WHOLE * 2 + 16) + chunk * 16, source, inside);
    }
}

template <class T> __device__ __forceinline__ unsigned int packed_pair(float low, float high) {
#ifdef __CUDA_ARCH__
    unsigned int pair;
    if constexpr (same<T, half_t>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return (unsigned int)narrow<T>(low).bits | (unsigned int)narrow<T>(high).bits << 16;
#endif
}

// The scores of two neighbours, and the larger one. What is outside has no weight.
template <bool IS_WHOLE>
__device__ __forceinline__ void weigh(const Params& p, int (&at)[RANK], int row, int key, float& first, float& second) {
    const int keys = (int)p.keys;
    at[RANK - 2] = row;
    float acc[2] = {first, second}, value[2];
    if constexpr (WIDTH == 2) {
        at[RANK - 1] = IS_WHOLE || key < keys ? key : keys - 2;
        score<IS_WHOLE>(p, at, acc, value);
    } else {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            at[RANK - 1] = IS_WHOLE || key + e < keys ? key + e : keys - 1;
            const float one[1] = {acc[e]};
            float of_one[1];
            score<IS_WHOLE>(p, at, one, of_one);
            value[e] = of_one[0];
        }
    }
    first = IS_WHOLE || key < keys ? value[0] : -INFINITY;
    second = IS_WHOLE || key + 1 < keys ? value[1] : -INFINITY;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mma_attention(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned char *const of_q = memory, *const of_k = memory + Q_BYTES, *const of_v = of_k + K_BYTES;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, j = lane % 4;

    // Neighbouring blocks are of one head, whose keys they share in the cache. Where later rows see more keys, these come first.
    const int rows = (int)p.rows, keys = (int)p.keys, tiles = (rows + BM - 1) / BM;
    const int tile = (int)(blockIdx.x % (unsigned int)tiles);
    const int row0 = (HAS_LAST ? tiles - 1 - tile : tile) * BM;
    int at[RANK];
    long long rest = blockIdx.x / (unsigned int)tiles, from_q = row0 * p.q_step, from_k = 0, from_v = 0;
    #pragma unroll
    for (int d = RANK - 3; d >= 0; --d) {
        const int i = at[d] = (int)(rest % p.batch[d]);
        rest /= p.batch[d];
        from_q += i / (int)p.q_shared[d] * p.q_batch[d];
        from_k += i / (int)p.k_shared[d] * p.k_batch[d];
        from_v += i / (int)p.v_shared[d] * p.v_batch[d];
    }
    // Of the keys, those that rows of this block see.
    const int last_row = (row0 + BM < rows ? row0 + BM : rows) - 1;
    int begin = 0, end = keys;
    if (HAS_FIRST) begin = (int)(row0 + p.first_key > 0 ? row0 + p.first_key : 0) / BN * BN;
    if (HAS_LAST) end = (int)(last_row + p.last_key + 1 < keys ? last_row + p.last_key + 1 : keys);

    float sum[TILES][COLUMN_TILES][4], most[TILES][2], total[TILES][2];
    #pragma unroll
    for (int i = 0; i < TILES; ++i) {
        #pragma unroll
        for (int n = 0; n < COLUMN_TILES; ++n)
            #pragma unroll
            for (int e = 0; e < 4; ++e) sum[i][n][e] = 0.0f;
        most[i][0] = most[i][1] = -INFINITY;
        total[i][0] = total[i][1] = 0.0f;
    }
    // Where a lane finds its rows of four matrices: of q, of k, and of v, which is turned on its way.
    const int r = lane % 8, low = lane / 8 % 2, high = lane / 16, warp_row = warp * TILES * 16;
    const int at_q = (warp_row + low * 8 + r) * PITCH + high * 16, at_k = (high * 8 + r) * PITCH + low * 16;
    const int at_v = (low * 8 + r) * PITCH_V + high * 16;

    pdl_wait();
    const Query* const q = p.q + from_q;
    const Query* const k = p.k + from_k;
    const Value* const v = p.v + from_v;
    fetch<BM, DEPTH_GIVEN, DEPTH>(of_q, q, p.q_step, rows - row0);
    if (begin < end) fetch<BN, DEPTH_GIVEN, DEPTH>(of_k, k + begin * p.k_step, p.k_step, keys - begin);
    commit_copies();

    unsigned int held[HOLDS ? TILES : 1][HOLDS ? DEPTH / 16 : 1][4];
    #pragma unroll 1
    for (int key0 = begin; key0 < end; key0 += BN) {
        await_copies<0>();
        __syncthreads();  // these keys are there, and nobody looks at the values before
        fetch<BN, COLUMNS_GIVEN, COLUMNS>(of_v, v + key0 * p.v_step, p.v_step, keys - key0);
        commit_copies();
        if (HOLDS && key0 == begin) {
            #pragma unroll
            for (int i = 0; i < TILES; ++i)
                #pragma unroll
                for (int step = 0; step < DEPTH / 16; ++step)
                    load_matrices<false>(held[i][step], of_q, at_q + i * 16 * PITCH + step * 32);
        }

        float s[TILES][KEY_TILES][4];
        #pragma unroll
        for (int i = 0; i < TILES; ++i)
            #pragma unroll
            for (int n = 0; n < KEY_TILES; ++n)
                #pragma unroll
                for (int e = 0; e < 4; ++e) s[i][n][e] = 0.0f;
        #pragma unroll
        for (int step = 0; step < DEPTH / 16; ++step) {
            unsigned int a[TILES][4];
            #pragma unroll
            for (int i = 0; i < TILES; ++i) {
                if constexpr (HOLDS) {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) a[i][e] = held[i][step][e];
                } else load_matrices<false>(a[i], of_q, at_q + i * 16 * PITCH + step * 32);
            }
            #pragma unroll
            for (int n = 0; n < KEY_TILES / 2; ++n) {
                unsigned int b[4];
                load_matrices<false>(b, of_k, at_k + n * 16 * PITCH + step * 32);
                #pragma unroll
                for (int i = 0; i < TILES; ++i) {
                    multiply_warp<Query, Query>(s[i][2 * n], a[i], b[0], b[1]);
                    multiply_warp<Query, Query>(s[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
        await_copies<0>();
        __syncthreads();  // the values are there, and nobody looks at the keys any more
        if (key0 + BN < end)
            fetch<BN, DEPTH_GIVEN, DEPTH>(of_k, k + (key0 + BN) * p.k_step, p.k_step, keys - key0 - BN);
        commit_copies();

        const bool is_whole = key0 + BN <= keys && (!HAS_LAST || key0 + BN - 1 <= row0 + p.last_key) &&
                              (!HAS_FIRST || key0 >= last_row + p.first_key);
        #pragma unroll
        for (int i = 0; i < TILES; ++i) {
            #pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int own = row0 + warp_row + i * 16 + h * 8 + g, row = own < rows ? own : rows - 1;
                if (is_whole) {
                    #pragma unroll
                    for (int n = 0; n < KEY_TILES; ++n)
                        weigh<true>(p, at, row, key0 + n * 8 + 2 * j, s[i][n][2 * h], s[i][n][2 * h + 1]);
                } else {
                    #pragma unroll
                    for (int n = 0; n < KEY_TILES; ++n)
                        weigh<false>(p, at, row, key0 + n * 8 + 2 * j, s[i][n][2 * h], s[i][n][2 * h + 1]);
                }
                float largest = most[i][h];
                #pragma unroll
                for (int n = 0; n < KEY_TILES; ++n) largest = fmaxf(largest, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
                largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
                largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
                // Where no key was seen yet: their powers are 0, and none is no number because of that.
                const float base = largest == -INFINITY ? 0.0f : largest;
                const float factor = near_exp2((most[i][h] - base) * LOG2_E);
                most[i][h] = largest;
                float here = 0.0f;
                #pragma unroll
                for (int n = 0; n < KEY_TILES; ++n) {
                    #pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; ++e) {
                        s[i][n][e] = near_exp2((s[i][n][e] - base) * LOG2_E);
                        here += s[i][n][e];
                    }
                }
                total[i][h] = total[i][h] * factor + here;
                #pragma unroll
                for (int n = 0; n < COLUMN_TILES; ++n) sum[i][n][2 * h] *= factor, sum[i][n][2 * h + 1] *= factor;
            }
        }
        #pragma unroll
        for (int step = 0; step < BN / 16; ++step) {
            unsigned int a[TILES][4];
            #pragma unroll
            for (int i = 0; i < TILES; ++i)
                #pragma unroll
                for (int e = 0; e < 4; ++e)
                    a[i][e] = packed_pair<Value>(s[i][2 * step + e / 2][e % 2 * 2], s[i][2 * step + e / 2][e % 2 * 2 + 1]);
            #pragma unroll
            for (int n = 0; n < COLUMN_TILES / 2; ++n) {
                unsigned int b[4];
                load_matrices<true>(b, of_v, at_v + step * 16 * PITCH_V + n * 32);
                #pragma unroll
                for (int i = 0; i < TILES; ++i) {
                    multiply_warp<Value, Value>(sum[i][2 * n], a[i], b[0], b[1]);
                    multiply_warp<Value, Value>(sum[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
    await_copies<0>();
    pdl_trigger();

    #pragma unroll
    for (int i = 0; i < TILES; ++i) {
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            float whole = total[i][h];
            whole += __shfl_xor_sync(~0u, whole, 1);
            whole += __shfl_xor_sync(~0u, whole, 2);
            const int row = row0 + warp_row + i * 16 + h * 8 + g;
            if (row >= rows) continue;
            if (most[i][h] == -INFINITY) whole = NAN;  // nothing is the largest, and the differences from it are no numbers
            at[RANK - 2] = row;
            at[RANK - 1] = 0;
            if (HAS_ROWS && j == 0) conclude(p, at, most[i][h], whole);
            const float share = 1.0f / whole;
            #pragma unroll
            for (int n = 0; n < COLUMNS_GIVEN / 8; ++n) {
                const float result[2] = {sum[i][n][2 * h] * share, sum[i][n][2 * h + 1] * share};
                #pragma unroll
                for (int e = 0; e < 2; e += WIDTH_OUT) {
                    at[RANK - 1] = n * 8 + 2 * j + e;
                    float acc[WIDTH_OUT];
                    #pragma unroll
                    for (int c = 0; c < WIDTH_OUT; ++c) acc[c] = result[e + c];
                    epilogue(p, at, acc, most[i][h], whole);
                }
            }
        }
    }
}
