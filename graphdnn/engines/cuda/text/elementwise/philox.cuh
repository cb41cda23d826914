// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four words of a counter.

struct Words { unsigned int at[4]; };

__device__ __forceinline__ Words philox(unsigned long long counter, unsigned long long key) {
    unsigned int c0 = (unsigned int)counter, c1 = (unsigned int)(counter >> 32), c2 = 0, c3 = 0;
    unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = (unsigned long long)c0 * 0xD2511F53u, b = (unsigned long long)c2 * 0xCD9E8D57u;
        c0 = (unsigned int)(b >> 32) ^ c1 ^ k0;
        c1 = (unsigned int)b;
        c2 = (unsigned int)(a >> 32) ^ c3 ^ k1;
        c3 = (unsigned int)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}
