// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four words of a counter.

struct Words { unsigned int at[4]; };

// The words of N consecutive counters. Their rounds are interleaved, so that each round key is computed once.
template <int N>
__device__ __forceinline__ void philox(unsigned long long counter, unsigned long long key, Words (&words)[N]) {
    unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
    #pragma unroll
    for (int i = 0; i < N; ++i) {
        const unsigned long long one = counter + (unsigned long long)i;
        words[i] = {{(unsigned int)one, (unsigned int)(one >> 32), 0, 0}};
    }
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        #pragma unroll
        for (int i = 0; i < N; ++i) {
            unsigned int(&c)[4] = words[i].at;
            const unsigned long long a = (unsigned long long)c[0] * 0xD2511F53u, b = (unsigned long long)c[2] * 0xCD9E8D57u;
            c[0] = (unsigned int)(b >> 32) ^ c[1] ^ k0;
            c[1] = (unsigned int)b;
            c[2] = (unsigned int)(a >> 32) ^ c[3] ^ k1;
            c[3] = (unsigned int)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

__device__ __forceinline__ Words philox(unsigned long long counter, unsigned long long key) {
    Words words[1];
    philox(counter, key, words);
    return words[0];
}
