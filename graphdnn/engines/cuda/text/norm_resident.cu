// Rows that are divided among blocks which all run at the same time: what is read is kept as far as it can be. The first
// EARLY packs of a thread stay in registers; the others pass through a ring in shared memory in groups of STEPS, each
// thread's in places of its own, and the last PLACES groups stay there. On the way back each group that leaves makes room
// for one that is read again, the last read first, where the second level of cache may still have it: of all else it is
// told that nobody will.
//
// The direction says what is kept (Stored), what a thread finds of its rows (Running), and how parts of rows join (Part).

static_assert(sizeof(Stored) == STORED_BYTES, "shared memory holds what the launch says");
static_assert(PLACES >= 2, "a group is on its way while another is used");

template <bool ALL, class Each> __device__ __forceinline__ void for_packs(const Span& mine, Count round, Each each) {
    if (ALL && mine.has(round + STEPS - 1)) {
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) each(s);
    } else {
        #pragma unroll
        for (int s = 0; s < (ALL ? STEPS - 1 : STEPS); ++s)
            if (mine.has(round + s)) each(s);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) begin_resident(const __grid_constant__ Params p) {
    let_next_start();
    for (long long i = threadIdx.x; i < p.barriers; i += THREADS) p.arrived[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) norm_resident(const __grid_constant__ Params p) {
    extern __shared__ uint4 kept_words[];
    const Place here = place_in(p, blockIdx.x);
    int at[RANK];
    #pragma unroll
    for (int j = 0; j < RANK; ++j) at[j] = 0;
    locate_row(p, here.row, at);
    const Count begin = (Count)blockIdx.y * (Count)p.per_split, limit = begin + (Count)p.per_split;
    const Span mine = {begin + here.lane, limit < (Count)p.count ? limit : (Count)p.count};
    const int groups = (int)p.groups;

    Row row;
    Running running;
    Stored early[EARLY > 0 ? EARLY : 1];
    Ring ring(kept_words);
    const Policy once = read_once(), again = read_again();
    const auto read = [&](int group, int place) {
        if (group < groups) ring.read(p, at, mine, group, place, group + PLACES < groups ? again : once);
        else ring.skip();
    };
    #pragma unroll 1
    for (int place = 0; place < PLACES; ++place) read(place, place);
    #pragma unroll
    for (int i = 0; i < EARLY; ++i) {
        locate_element(p, mine.some(i), at);
        take(p, at, early[i], once);
    }
    running.prepare(p, at, row);
    if (EARLY == 0) ring.await();
    running.begin(EARLY > 0 ? early[0] : ring.kept.get(0));
    #pragma unroll
    for (int i = 0; i < EARLY; ++i)
        if (mine.has(i)) running.add(early[i], row);
    int place = 0;
    #pragma unroll 1
    for (int g = 0; g < groups; ++g) {
        ring.await();
        Stored pack[STEPS];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) pack[s] = ring.kept.get(place * STEPS + s);
        for_packs<true>(mine, EARLY + (Count)g * STEPS, [&](int s) { running.add(pack[s], row); });
        read(g + PLACES, place);
        place = place + 1 == PLACES ? 0 : place + 1;
    }

    Part<ROW_WIDTH> part = running.part(p, mine.count());
    join_all(p, here, part, running, at, row);
    if (!here.is_live) return;

    #pragma unroll 1
    for (int g = groups - 1; g >= 0; --g) {
        place = place == 0 ? PLACES - 1 : place - 1;
        ring.await();
        Stored pack[STEPS];
        #pragma unroll
        for (int s = 0; s < STEPS; ++s) pack[s] = ring.kept.get(place * STEPS + s);
        for_packs<false>(mine, EARLY + (Count)g * STEPS, [&](int s) {
            locate_element(p, mine.pack(EARLY + (Count)g * STEPS + s), at);
            epilogue(p, at, widened(pack[s]), row);
        });
        if (g >= PLACES) ring.read(p, at, mine, g - PLACES, place, once);
        else ring.skip();
    }
    #pragma unroll
    for (int i = 0; i < EARLY; ++i)
        if (mine.has(i)) {
            locate_element(p, mine.pack(i), at);
            epilogue(p, at, widened(early[i]), row);
        }
}
