// Partial sums lie in packs of four: [part][64 rows x 32 columns][row of a thread's two][half of its columns][thread].
// How many such pieces there are in a part, and which is which, is said elsewhere (split_k_tile.cuh, or the kernel).
__device__ __forceinline__ int fragments_per_split(const Params& p);

__device__ __forceinline__ long long partial_offset(const Params& p, int part, int piece) {
    return ((long long)part * fragments_per_split(p) + piece) * (64 * 32);
}

// They stay in the second level of cache, though what products read goes through it meanwhile: written to memory, they would take
// time from it.
__device__ __forceinline__ void store_lasting(Accum* to, const Vec<Accum, 4>& pack) {
#ifdef __CUDA_ARCH__
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    #pragma unroll
    for (int i = 0; i < (int)sizeof(pack) / 16; ++i) {
        const uint4 word = ((const uint4*)&pack)[i];
        asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                     ::"l"((uint4*)to + i), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w), "l"(policy) : "memory");
    }
#else
    store_vec<4>(to, pack);
#endif
}

__device__ __forceinline__ void store_partials(const Params& p, int part, int piece, const Accum* sum) {
    Accum* const to = p.partial + partial_offset(p, part, piece) + threadIdx.x % 128 * 4;
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        Accum v[8];
        row_fragment(v, sum, h);
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            Vec<Accum, 4> pack;
            #pragma unroll
            for (int e = 0; e < 4; ++e) pack.data[e] = v[4 * half + e];
            store_lasting(to + (2 * h + half) * 512, pack);
        }
    }
}

// What a piece of partial sums is of: the tile, its first row in the tile, and its block of columns.
struct PartialTile { WorkTile w; int row, block; };
