// A ring in shared memory whose packs are computed on their way: a group waits in registers while the one before it is
// used, and then takes its place.
struct Ring {
    Kept kept;
    Stored coming[STEPS];
    int coming_to;  // its place, or -1

    __device__ __forceinline__ explicit Ring(void* memory) : kept((unsigned char*)memory), coming_to(-1) {}

    __device__ __forceinline__ void read(
        const Params& p, int (&at)[RANK], const Span& mine, Count group, int place, Policy policy
    ) {
        skip();
        coming_to = place;
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, mine.some(EARLY + group * STEPS + s), at);
            take(p, at, coming[s], policy);
        }
    }
    __device__ __forceinline__ void skip() {
        if (coming_to >= 0)
            #pragma unroll
            for (int s = 0; s < STEPS; ++s) kept.put(coming_to * STEPS + s, coming[s]);
        coming_to = -1;
    }
    __device__ __forceinline__ void await() const {}
};
