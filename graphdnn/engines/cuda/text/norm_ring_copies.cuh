// A ring in shared memory whose packs arrive by themselves: as many groups are on their way as it has places.
struct Ring {
    Kept kept;

    __device__ __forceinline__ explicit Ring(void* memory) : kept((unsigned char*)memory) {}

    // Begins to read a group of the thread's packs into a place, whose former group nobody needs any more.
    __device__ __forceinline__ void read(
        const Params& p, int (&at)[RANK], const Span& mine, Count group, int place, Policy policy
    ) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            locate_element(p, mine.some(EARLY + group * STEPS + s), at);
            copy(p, at, kept, place * STEPS + s, policy);
        }
        commit_copies();
    }
    // Stands for a group that does not exist.
    __device__ __forceinline__ void skip() { commit_copies(); }
    // The group begun PLACES turns ago is there.
    __device__ __forceinline__ void await() { await_copies<PLACES - 1>(); }
};
