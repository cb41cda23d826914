// Division of a 32-bit count by an extent that the host knows: `magic` has the multiplier in its low word and the shift in its
// high word (fast_division.py). The quotient is exact for counts below 2^31. 64-bit counts use the division instruction.

__device__ __forceinline__ unsigned int quotient(unsigned int n, long long, long long magic) {
    return (__umulhi(n, (unsigned int)magic) + n) >> (int)(magic >> 32);
}
__device__ __forceinline__ unsigned long long quotient(unsigned long long n, long long size, long long) {
    return n / (unsigned long long)size;
}
