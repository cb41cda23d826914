// Partial sums of a split GEMM in the workspace, which split_k_reduce.cu adds.
//
// Layout:     [split][fragment][row h of a thread's two][half of the columns][thread], vectors of four. A fragment has 64 rows and 32
//             columns: one column block of a warpgroup's MMA tile.
//
// A kernel, or split_k_tile.cuh, defines how many fragments a split has, and the tile of each.

#include "conv_work_tile.cuh"
#include "epilogue_store.cuh"

__device__ __forceinline__ int fragments_per_split(const Params& p);

__device__ __forceinline__ long long partial_offset(const Params& p, int split, int fragment) {
    return ((long long)split * fragments_per_split(p) + fragment) * (64 * 32);
}

// Stores with the L2 policy evict_last: the partial sums stay in L2 until they are added, while operands stream through it.
__device__ __forceinline__ void store_evict_last(Accum* to, const Vec<Accum, 4>& vec) {
#ifdef __CUDA_ARCH__
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    #pragma unroll
    for (int i = 0; i < (int)sizeof(vec) / 16; ++i) {
        const uint4 word = ((const uint4*)&vec)[i];
        asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                     ::"l"((uint4*)to + i), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w), "l"(policy) : "memory");
    }
#else
    store_vec<4>(to, vec);
#endif
}

// Stores a thread's 16 accumulators of a fragment.
__device__ __forceinline__ void store_partials(const Params& p, int split, int fragment, const Accum* accum) {
    Accum* const to = p.partial + partial_offset(p, split, fragment) + threadIdx.x % 128 * 4;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        Accum v[8];
        row_fragment(v, accum, h);
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            Vec<Accum, 4> vec;
            #pragma unroll
            for (int e = 0; e < 4; ++e) vec.data[e] = v[4 * half + e];
            store_evict_last(to + (2 * h + half) * 512, vec);
        }
    }
}

// Where a fragment is: its tile, its first row in the tile, and its column block.
struct PartialTile { WorkTile w; int row, block; };
