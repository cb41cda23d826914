// The product of TILE sequences with OUT matrices of TILE units. A thread has four sequences and one unit, and PARTS threads
// split K. Chunks of DEPTH states pass through shared memory. The matrices do too, unless they are WEIGHTS_STATIONARY throughout all
// time steps.

constexpr int PARTS = 4, VEC_WIDTH = 16 / (int)sizeof(Compute), STATE_PITCH = DEPTH + VEC_WIDTH;
static_assert(THREADS == TILE * TILE && TILE == 16 && DEPTH % (PARTS * VEC_WIDTH) == 0, "a thread for each result");

template <int OUT> struct Tile {
    Compute *states, *joined, *matrices;
    int pitch;  // of the matrices

    __device__ __forceinline__ Tile(unsigned char* memory, int depth)
        : states((Compute*)memory), joined(states + TILE * STATE_PITCH), matrices(joined + PARTS * TILE * OUT * TILE),
          pitch((WEIGHTS_STATIONARY ? depth : DEPTH) + VEC_WIDTH) {}

    // Value k of matrix o at unit u, in the chunk that begins at `chunk`.
    __device__ __forceinline__ Compute& matrix(int o, int u, int chunk, int k) const {
        return matrices[(o * TILE + u) * pitch + (WEIGHTS_STATIONARY ? chunk : 0) + k];
    }

    // result[o] belongs to sequence threadIdx.x / TILE and unit threadIdx.x % TILE. `state(chunk, k)` is a value of this
    // sequence, and `fill(chunk)` loads matrices.
    template <class States, class Fill>
    __device__ __forceinline__ void product(int depth, const States& state, const Fill& fill, Compute (&result)[OUT]) const {
        const int part = (int)threadIdx.x / 64, four = (int)threadIdx.x % 64 / TILE * 4, u = (int)threadIdx.x % TILE;
        const int row = (int)threadIdx.x / TILE;
        Compute sum[4][OUT];
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int o = 0; o < OUT; ++o) sum[i][o] = Compute(0);
        #pragma unroll 1
        for (int chunk = 0; chunk < depth; chunk += DEPTH) {
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < DEPTH; k += TILE) states[row * STATE_PITCH + k + u] = state(chunk, k + u);
            if (!WEIGHTS_STATIONARY) fill(chunk);
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < DEPTH / PARTS; k += VEC_WIDTH) {
                Vec<Compute, VEC_WIDTH> h[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) h[i] = load_vec<VEC_WIDTH>(states + (four + i) * STATE_PITCH + part * (DEPTH / PARTS) + k);
                #pragma unroll
                for (int o = 0; o < OUT; ++o) {
                    const Vec<Compute, VEC_WIDTH> m = load_vec<VEC_WIDTH>(&matrix(o, u, chunk, part * (DEPTH / PARTS) + k));
                    #pragma unroll
                    for (int e = 0; e < VEC_WIDTH; ++e)
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) multiply_add(sum[i][o], h[i][e], m[e]);
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            #pragma unroll
            for (int o = 0; o < OUT; ++o) joined[((part * TILE + four + i) * OUT + o) * TILE + u] = sum[i][o];
        __syncthreads();
        #pragma unroll
        for (int o = 0; o < OUT; ++o) {
            result[o] = Compute(0);
            #pragma unroll
            for (int i = 0; i < PARTS; ++i) result[o] += joined[((i * TILE + row) * OUT + o) * TILE + u];
        }
    }
};
