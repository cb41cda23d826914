// Sums of a filter gradient of floats: the product of the first planes and those of the others apart. With PROMOTED they are
// joined after so many stages and added in float.

struct Sums {
    float sum[2][SUMS], total[PROMOTED > 0 ? SUMS : 1];

    __device__ __forceinline__ void begin() {
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) sum[0][i] = sum[1][i] = 0;
        #pragma unroll
        for (int i = 0; i < (PROMOTED > 0 ? SUMS : 1); ++i) total[i] = 0;
    }
    __device__ __forceinline__ void pin_all() { pin(sum[0]), pin(sum[1]); }

    // A stage's products, the smallest first.
    __device__ __forceinline__ void multiply_stage(matrix_t a, matrix_t b, int number) {
        const int unpromoted = PROMOTED > 0 ? number % UNIT : 1;
        #pragma unroll
        for (int k = 0; k < DEEP / 16; ++k)
            #pragma unroll
            for (int weight = PLANES - 1; weight >= 0; --weight)
                #pragma unroll
                for (int i = 0; i <= weight; ++i)
                    multiply(
                        sum[weight == 0], plane_of<A_PLANE>(a, i, k), plane_of<B_PLANE>(b, weight - i, k),
                        k == 0 && i == 0 && (weight == 0 || weight == PLANES - 1) ? unpromoted : 1
                    );
    }
    __device__ __forceinline__ void promote() {
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) total[i] += joined(i);
    }
    __device__ __forceinline__ float result(int i) const {
        if constexpr (PROMOTED > 0) return total[i];
        else return joined(i);
    }

private:
    // Parts of an infinity are infinity, NaN and NaN: what they add to the small sums is not wanted.
    __device__ __forceinline__ float joined(int i) const {
        const float all = sum[1][i] + sum[0][i];
        return fabsf(all) < INFINITY ? all : sum[1][i];
    }
};
