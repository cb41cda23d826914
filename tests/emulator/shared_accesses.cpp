// Asynchronous copies of threads (cp.async), and who touches shared memory. Part of the scheduler's library.
//
// Kernel text that is compiled to be watched (-fsanitize=thread) calls the functions at the end before each access; the
// compiler's own runtime is not used. Two threads may touch a byte, one of them writing it, with a barrier of the block
// in between, or where they belong to one warp with a meeting of that warp. A named barrier and an mbarrier count as
// barriers of all: what they do not order is not seen.

#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

namespace {

struct Touch {
    unsigned block, epoch, warp_epoch;
    int thread;
    const void* code;
};
struct Byte {
    Touch write, read, other_read;  // two readers of different threads
    int on_its_way;                 // 1 + the thread whose copy has not landed
};

constexpr size_t FIXED = 128 * 1024;
Byte* bytes;          // of dynamic shared memory, then of fixed
Memory fixed_memory;
bool watched;
unsigned epoch, warp_epoch[MAX_THREADS / WARP];

struct AsyncCopy { unsigned char* to; const unsigned char* from; int bytes, is_inside, group; const void* code; };
std::vector<AsyncCopy> async_copies[MAX_THREADS];
int async_groups[MAX_THREADS];

Touch touch_now(const void* code) {
    const unsigned block = emulated_blockIdx.x + emulated_gridDim.x * (emulated_blockIdx.y + emulated_gridDim.y * emulated_blockIdx.z);
    return {block, epoch, warp_epoch[current / WARP], current, code};
}

// Where code lies in its library: emulate.py makes a line of it.
void say_code(const void* code) {
    Dl_info library = {};
    if (code && dladdr(code, &library)) say("<%s+%lx>", library.dli_fname, (long)((const char*)code - (const char*)library.dli_fbase - 1));
    else say("?");
}

// What the running thread does at a byte.
void say_touch(size_t at, bool writes, const void* code) {
    say_where();
    say("%s byte %zu of %s shared memory at ", writes ? "writes" : "reads", at % (SHARED + MARGIN),
        at < SHARED + MARGIN ? "dynamic" : "fixed");
    say_code(code);
}

void check(size_t at, const Touch& before, const char* did, const Touch& now, bool writes) {
    if (before.epoch != now.epoch || before.block != now.block || before.thread == now.thread) return;
    if (before.thread / WARP == now.thread / WARP && before.warp_epoch != now.warp_epoch) return;
    say_touch(at, writes, now.code);
    say(", which thread %d %s at ", before.thread, did);
    say_code(before.code);
    say(", and nothing orders them");
    fail();
}

// The first byte's place in `bytes`; SIZE where that is not shared memory.
constexpr size_t SIZE = SHARED + MARGIN + FIXED;
size_t place_of(const unsigned char* at) {
    const auto* fixed = static_cast<const unsigned char*>(fixed_memory.start);
    if (at >= emulated_dynamic_shared && at < emulated_dynamic_shared + SHARED) return at - emulated_dynamic_shared;
    return at >= fixed && at < fixed + fixed_memory.bytes ? SHARED + MARGIN + (at - fixed) : SIZE;
}

void touch(const void* address, size_t size, bool writes, const void* code) {
    if (!watched) return;
    const size_t first = place_of(static_cast<const unsigned char*>(address));
    if (first == SIZE) return;
    if (!bytes) bytes = static_cast<Byte*>(calloc(SIZE, sizeof(Byte)));
    const Touch now = touch_now(code);
    for (size_t i = first; i < first + size && i < SIZE; ++i) {
        Byte& byte = bytes[i];
        if (byte.on_its_way) {
            say_touch(i, writes, code);
            say(", where a copy of thread %d has not landed", byte.on_its_way - 1);
            fail();
        }
        check(i, byte.write, "wrote", now, writes);
        if (writes) {
            check(i, byte.read, "read", now, true);
            check(i, byte.other_read, "read", now, true);
            byte.write = now;
        } else {
            if (byte.read.thread != now.thread || byte.read.block != now.block) byte.other_read = byte.read;
            byte.read = now;
        }
    }
}

// A copy begins (thread + 1), or has landed (0).
void mark_way(const void* address, size_t size, int value) {
    if (!bytes || (value && !watched)) return;
    const size_t first = place_of(static_cast<const unsigned char*>(address));
    for (size_t i = first; i < first + size && i < SIZE; ++i) bytes[i].on_its_way = value;
}

void order_block() { ++epoch; }
void order_warps(int first, int threads) {
    for (int w = first / WARP; w < (first + threads) / WARP; ++w) ++warp_epoch[w];
}

// A thread's groups of copies land, all but the latest `pending`.
void land(int of, int pending) {
    auto& mine = async_copies[of];
    size_t i = 0;
    for (; i < mine.size() && mine[i].group < async_groups[of] - pending; ++i) {
        const AsyncCopy& copy = mine[i];
        if (copy.is_inside) memcpy(copy.to, copy.from, copy.bytes);
        else memset(copy.to, 0, copy.bytes);
        mark_way(copy.to, copy.bytes, 0);
        touch(copy.to, copy.bytes, true, copy.code);
    }
    mine.erase(mine.begin(), mine.begin() + i);
}

// A block that goes on later finds its copies landed.
void land_all() {
    for (int i = 0; i < count; ++i) {
        const int selected = current;
        current = i;
        land(i, -1);
        current = selected;
    }
}

void forget_async() {
    for (int i = 0; i < MAX_THREADS; ++i) {
        for (const AsyncCopy& copy : async_copies[i]) mark_way(copy.to, copy.bytes, 0);
        async_copies[i].clear(), async_groups[i] = 0;
    }
    ++epoch;
}

}  // namespace

extern "C" {

// A copy lands as late as it may: when its thread waits for its group. Until then its destination is poison.
void emulated_copy_async(void* to, const void* from, int size, int is_inside) {
    const void* code = __builtin_return_address(0);
    if ((uintptr_t)to % size || (is_inside && (uintptr_t)from % size)) emulated_stop("cp.async of a misaligned address", 0);
    touch(to, size, true, code);
    memset(to, POISON, size);
    mark_way(to, size, current + 1);
    async_copies[current].push_back({(unsigned char*)to, (const unsigned char*)from, size, is_inside, async_groups[current], code});
}
void emulated_commit_copies(void) { ++async_groups[current]; }
void emulated_await_copies(int pending) { land(current, pending); }

#define EMULATED_TOUCH(size)                                                                                     \
    void __tsan_read##size(void* at) { touch(at, size, false, __builtin_return_address(0)); }                   \
    void __tsan_write##size(void* at) { touch(at, size, true, __builtin_return_address(0)); }                   \
    void __tsan_unaligned_read##size(void* at) { touch(at, size, false, __builtin_return_address(0)); }         \
    void __tsan_unaligned_write##size(void* at) { touch(at, size, true, __builtin_return_address(0)); }         \
    void __tsan_volatile_read##size(void* at) { touch(at, size, false, __builtin_return_address(0)); }          \
    void __tsan_volatile_write##size(void* at) { touch(at, size, true, __builtin_return_address(0)); }
EMULATED_TOUCH(1)
EMULATED_TOUCH(2)
EMULATED_TOUCH(4)
EMULATED_TOUCH(8)
EMULATED_TOUCH(16)
void __tsan_read_range(void* at, size_t size) { touch(at, size, false, __builtin_return_address(0)); }
void __tsan_write_range(void* at, size_t size) { touch(at, size, true, __builtin_return_address(0)); }
void __tsan_init(void) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void*, void*) {}
}
