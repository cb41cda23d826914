// Division of a 32-bit count by an extent known to the host: its multiplier in the low word, its shift in the high one
// (quotient.py), exact for counts below 2^31. Longer counts divide.

__device__ __forceinline__ unsigned int quotient(unsigned int n, long long, long long magic) {
    return (__umulhi(n, (unsigned int)magic) + n) >> (int)(magic >> 32);
}
__device__ __forceinline__ unsigned long long quotient(unsigned long long n, long long size, long long) {
    return n / (unsigned long long)size;
}
