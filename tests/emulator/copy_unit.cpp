// Barriers in shared memory and tensor copies. Part of the scheduler's library: see emulate.py.
//
// A copy lands as late as it may: when a thread waits at its barrier. Until then its destination is poison, so that
// what reads too early, or fills too early what is still read, is seen in the result.

#include "tensor_unit.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr unsigned WINDOW = 1024;  // where the shared window's dynamic memory begins: no address is 0
constexpr int LINE = 128;          // bytes; a copy begins at a multiple
constexpr int LONGEST = 2048;      // bytes of a row

// As tests/emulator/tensor_maps.py writes it.
struct __attribute__((packed)) Map {
    uint64_t address;
    uint32_t sizes[5];
    uint64_t strides[5];  // bytes, of the innermost axis too
    uint16_t box[5];
    uint8_t steps[5];
    int16_t lower[3], upper[3];
    uint16_t channels, pixels;
    uint8_t rank, element;
    uint8_t is_walk;
    uint8_t row;  // bytes, within which 16-byte parts are exchanged: 32, 64 or 128; 0: rows of a box, not exchanged
    uint8_t is_rounded;  // floats, to the nearest of TF32
};
static_assert(sizeof(Map) <= 128, "a map's bytes");

// An mbarrier's eight bytes.
struct Barrier {
    uint16_t count, pending;
    int32_t bytes : 30;
    uint32_t phase : 2;  // 0, 1; poison has both bits set
};
static_assert(sizeof(Barrier) == 8, "an mbarrier's bytes");

struct Copy {
    uint3 block;
    unsigned to, barrier;
    Map map;
    int at[5], offset[3];
};
std::vector<Copy> flying;

bool is_same(uint3 a, uint3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

unsigned char* shared_bytes(unsigned at, unsigned bytes, const char* what) {
    if (at < WINDOW || at - WINDOW + bytes > dynamic_bytes) emulated_stop(what, 0);
    return emulated_dynamic_shared + (at - WINDOW);
}

Barrier& barrier_at(unsigned at) {
    if (at % 8) emulated_stop("an mbarrier lies at a multiple of 8", 0);
    auto& found = *reinterpret_cast<Barrier*>(shared_bytes(at, 8, "an mbarrier outside of the launch's shared memory"));
    if (found.phase > 1) emulated_stop("an mbarrier is used that was not initialized", 0);
    return found;
}

void settle(unsigned at, Barrier& barrier) {
    if (barrier.pending || barrier.bytes) return;
    barrier.pending = barrier.count;
    barrier.phase ^= 1;
    progress = true;
    order_block();
    release(AT_PHASE, (int)at);
}

int row_bytes(const Map& map) { return map.row ? map.row : map.box[0] * map.element; }
unsigned bytes_of(const Map& map) {
    if (map.is_walk) return map.pixels * map.row;
    unsigned rows = 1;
    for (int d = 1; d < map.rank; ++d) rows *= map.box[d];
    return rows * row_bytes(map);
}

// One row: the elements from `at` on along the innermost axis; zeros outside the tensor.
void put_row(unsigned to, const Map& map, const long* at) {
    unsigned char row[LONGEST] = {};
    bool is_inside = true;
    uint64_t from = map.address;
    for (int d = 1; d < map.rank; ++d) {
        is_inside = is_inside && at[d] >= 0 && at[d] < (long)map.sizes[d];
        from += at[d] * map.strides[d];
    }
    for (int e = 0; is_inside && e < row_bytes(map) / map.element; ++e)
        if (at[0] + e >= 0 && at[0] + e < (long)map.sizes[0])
            memcpy(row + e * map.element, reinterpret_cast<const void*>(from + (at[0] + e) * map.element), map.element);
    for (int e = 0; map.is_rounded && e < map.row / 4; ++e) {
        uint32_t word;
        memcpy(&word, row + 4 * e, 4);
        if ((word & 0x7f800000u) != 0x7f800000u) word = (word + 0x1000u) & ~0x1fffu;
        memcpy(row + 4 * e, &word, 4);
    }
    const unsigned exchanged = map.row ? map.row / 16 - 1 : 0;
    for (unsigned part = 0; part < row_bytes(map) / 16u; ++part) {
        const unsigned place = to + 16 * part;
        memcpy(emulated_dynamic_shared + ((place ^ (place >> 7 & exchanged) << 4) - WINDOW), row + 16 * part, 16);
    }
}

void land(const Copy& copy) {
    const Map& map = copy.map;
    unsigned to = copy.to;
    long at[5];
    for (int d = 0; d < 5; ++d) at[d] = copy.at[d];
    if (map.is_walk) {
        const int axes = map.rank - 2;
        for (int pixel = 0; pixel < map.pixels; ++pixel, to += map.row) {
            long seen[5] = {at[0], at[1], at[2], at[3], at[4]};
            for (int d = 0; d < axes; ++d) seen[1 + d] += copy.offset[d];
            put_row(to, map, seen);
            int d = 0;
            for (; d < axes; ++d) {
                at[1 + d] += map.steps[1 + d];
                if (at[1 + d] <= (long)map.sizes[1 + d] - 1 + map.upper[d]) break;
                at[1 + d] = map.lower[d];
            }
            if (d == axes) ++at[map.rank - 1];
        }
    } else {
        const unsigned rows = bytes_of(map) / row_bytes(map);
        for (unsigned row = 0; row < rows; ++row, to += row_bytes(map)) {
            unsigned rest = row;
            long seen[5] = {at[0]};
            for (int d = 1; d < map.rank; ++d) {
                seen[d] = at[d] + rest % map.box[d];
                rest /= map.box[d];
            }
            put_row(to, map, seen);
        }
    }
    Barrier& barrier = barrier_at(copy.barrier);
    barrier.bytes -= (int)bytes_of(map);
    settle(copy.barrier, barrier);
}

// The latest copy first: nothing promises the order of issue.
void land_all(unsigned barrier) {
    for (size_t i = flying.size(); i-- > 0;)
        if (flying[i].barrier == barrier && is_same(flying[i].block, emulated_blockIdx)) {
            const Copy copy = flying[i];
            flying.erase(flying.begin() + i);
            land(copy);
        }
}

bool is_awaited(unsigned barrier) {
    for (int i = 0; i < count; ++i)
        if (thread[i].state == AT_PHASE && thread[i].barrier == (int)barrier) return true;
    return false;
}

void issue(unsigned to, const void* map, unsigned barrier, const int* at, const int* offset, int rank, bool is_walk) {
    Copy copy{emulated_blockIdx, to, barrier, {}, {}, {}};
    if (reinterpret_cast<uintptr_t>(map) % 64) emulated_stop("a tensor map lies at a multiple of 64", 0);
    memcpy(&copy.map, map, sizeof(Map));
    if (copy.map.rank != rank || copy.map.is_walk != is_walk) emulated_stop("a tensor map of another kind", 0);
    if (to % LINE) emulated_stop("a copy of swizzled rows begins at a multiple of 128", 0);
    for (int d = 0; d < rank; ++d) copy.at[d] = at[d];
    // An H200 stops with an illegal instruction where they do not.
    if (is_walk && at[0] * copy.map.element % 16) emulated_stop("channels of a walk begin at a multiple of 16 bytes", 0);
    for (int d = 0; is_walk && d < rank - 2; ++d) {
        copy.offset[d] = offset[d];
        if (offset[d] < 0 || offset[d] >= 1 << (rank == 3 ? 16 : rank == 4 ? 8 : 5)) emulated_stop("an offset of too many bits", 0);
    }
    if (is_walk && at[0] * copy.map.element % 16) emulated_stop("a walk begins at a multiple of 16 bytes of channels", 0);
    barrier_at(barrier);
    const unsigned bytes = bytes_of(copy.map);
    memset(shared_bytes(to, bytes, "a copy to outside of the launch's shared memory"), POISON, bytes);
    progress = true;
    if (is_awaited(barrier)) land(copy);
    else flying.push_back(copy);
}

void forget_copies() { flying.clear(); }

void end_copies() {
    for (const Copy& copy : flying)
        if (is_same(copy.block, emulated_blockIdx)) emulated_stop("a copy has not landed when its block ends", 0);
}

}  // namespace

extern "C" {

void emulated_dsmem_store(unsigned to, int block, const void* from, int bytes) {
    if (block < 0 || block >= (int)all.size()) emulated_stop("a block that is not of the cluster", 0);
    unsigned char* const here = shared_bytes(to, bytes, "something is sent beyond the launch's shared memory");
    unsigned char* const there = all[block].dynamic.data() + (here - emulated_dynamic_shared);
    memcpy(block == running_block ? here : there, from, bytes);
}
unsigned emulated_shared_address(const void* p) {
    return WINDOW + unsigned(static_cast<const unsigned char*>(p) - emulated_dynamic_shared);
}

void emulated_mbarrier_init(unsigned at, int count) {
    if (at % 8) emulated_stop("an mbarrier lies at a multiple of 8", 0);
    const Barrier fresh{(uint16_t)count, (uint16_t)count, 0, 0};
    memcpy(shared_bytes(at, 8, "an mbarrier outside of the launch's shared memory"), &fresh, sizeof fresh);
}

void emulated_mbarrier_arrive(unsigned at, int bytes) {
    Barrier& barrier = barrier_at(at);
    if (barrier.pending == 0) emulated_stop("more threads arrive at an mbarrier than it counts", 0);
    barrier.bytes += bytes;
    --barrier.pending;
    progress = true;
    settle(at, barrier);
}

void emulated_mbarrier_wait(unsigned at, int parity) {
    if ((int)barrier_at(at).phase == parity) land_all(at);
    while ((int)barrier_at(at).phase == parity) {
        thread[current].barrier = (int)at;
        wait(AT_PHASE, "an mbarrier", 0);
    }
}

void emulated_tma_load_tile(unsigned to, const void* map, unsigned barrier, const int* at, int rank) {
    issue(to, map, barrier, at, nullptr, rank, false);
}

void emulated_tma_load_im2col(unsigned to, const void* map, unsigned barrier, const int* at, const int* offset, int rank) {
    issue(to, map, barrier, at, offset, rank, true);
}
}
