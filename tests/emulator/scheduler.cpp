// Runs the threads of a CUDA block as fibers of one host thread: each runs until it waits, then the next one does.
// Blocks run one after another, those of a cooperative launch in turns: one runs until its threads only yield. What would
// hang or be undefined on the device stops the launch with a message.

#include "scheduler.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <sys/mman.h>
#include <utility>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace {

// A launch begins with nothing in flight, and no block may end with it (copy_unit.cpp, warpgroup_products.cpp).
void forget_copies();
void end_copies();
void forget_products();
void end_products();
// Asynchronous copies of threads, and the order in which threads touch shared memory (shared_accesses.cpp).
void forget_async();
void land_all();
void order_block();
void order_warps(int first, int threads);

constexpr int MAX_THREADS = 1024, WARP = 32, NAMED = 16;
constexpr size_t STACK = 256 * 1024, PAGE = 4096, SHARED = 256 * 1024, MARGIN = 4096;
constexpr unsigned char POISON = 0xff;
constexpr long PATIENCE = 1 << 14;  // rounds in which threads only yield
constexpr long TOGETHER = 72 * 1024;  // threads of a cooperative launch: 132 blocks of 512, and some

enum State { READY, AT_BARRIER, AT_NAMED, AT_PHASE, MEETING, EXITED };

struct Thread {
#ifdef __x86_64__
    void* stack_pointer;
#else
    ucontext_t context;
#endif
    State state;
    uint3 index;
    const char* name;  // of what it waits at
    int line;
    EmulatedVote vote;
    int answer;
    int barrier;  // a named one's number, an mbarrier's address
    int threads;  // of a meeting, and what the thread hands in
    unsigned mask;
    void* mine;
    EmulatedWork* work;
};

Thread thread[MAX_THREADS];
char *stacks, *first_stack;  // of all threads, and of those of the running block
int count, exited, arrived, current;
bool progress, early_exit, backward;
unsigned in_meeting[MAX_THREADS / WARP], present[MAX_THREADS / WARP];
int vote_any, vote_all, vote_count;
unsigned dynamic_bytes;  // of shared memory, that the launch has
struct { int arrived, threads; } named[NAMED];
void (*entry)(const void*);
const void* params;

char message[2048];
sigjmp_buf stop;
pthread_t launcher;
void* touched;
std::mutex one_launch;

// ---- fibers

#ifdef __x86_64__
void* scheduler_stack_pointer;
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.hidden emulated_switch
.type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulated_switch, .-emulated_switch
)");
void enter(int i) { emulated_switch(&scheduler_stack_pointer, thread[i].stack_pointer); }
void leave(int from, int to) {
    emulated_switch(&thread[from].stack_pointer, to < 0 ? scheduler_stack_pointer : thread[to].stack_pointer);
}
void prepare(int i, void (*start)()) {
    // Not all at the same place of a page: they would share a few lines of the cache.
    void** top = reinterpret_cast<void**>(first_stack + (i + 1) * STACK - i * 320 % 16384);
    *--top = nullptr;  // a function starts with its return address on a stack that was aligned before the call
    *--top = reinterpret_cast<void*>(start);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    thread[i].stack_pointer = top;
}
#else
ucontext_t scheduler_context;
void enter(int i) { swapcontext(&scheduler_context, &thread[i].context); }
void leave(int from, int to) {
    swapcontext(&thread[from].context, to < 0 ? &scheduler_context : &thread[to].context);
}
void prepare(int i, void (*start)()) {
    getcontext(&thread[i].context);
    thread[i].context.uc_stack.ss_sp = first_stack + i * STACK + PAGE;
    thread[i].context.uc_stack.ss_size = STACK - PAGE;
    thread[i].context.uc_link = nullptr;
    makecontext(&thread[i].context, start, 0);
}
#endif

bool make_stacks() {
    if (stacks) return true;
    void* area = mmap(nullptr, TOGETHER * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) return false;
    stacks = static_cast<char*>(area);
    // A guard is a mapping of its own, of which a process has few: only the first block's stacks have one.
    for (int i = 0; i < MAX_THREADS; ++i) mprotect(stacks + i * STACK, PAGE, PROT_NONE);
    return true;
}

// ---- what went wrong

int written;
void say(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (written < int(sizeof message) - 1)
        written += vsnprintf(message + written, sizeof message - written, format, arguments);
    va_end(arguments);
}

[[noreturn]] void fail() { siglongjmp(stop, 1); }

void say_where() {
    say("block (%u,%u,%u) thread (%u,%u,%u): ", emulated_blockIdx.x, emulated_blockIdx.y, emulated_blockIdx.z,
        emulated_threadIdx.x, emulated_threadIdx.y, emulated_threadIdx.z);
}

void say_waiting() {
    std::map<std::pair<const char*, int>, std::pair<int, int>> places;  // how many wait there, and who is the first
    for (int i = 0; i < count; ++i) {
        const bool waits = thread[i].state != EXITED && thread[i].state != READY;
        const char* name = waits ? thread[i].name : thread[i].state == EXITED ? "exited" : "run";
        auto [place, fresh] = places.try_emplace({name, waits ? thread[i].line : 0}, 0, i);
        ++place->second.first;
    }
    const char* joint = "";
    for (auto& [place, who] : places) {
        if (place.second)
            say("%s%d wait in %s at line %d (the first is thread %d)", joint, who.first, place.first, place.second,
                who.second);
        else
            say("%s%d have %s (the first is thread %d)", joint, who.first, place.first, who.second);
        joint = "; ";
    }
}

[[noreturn]] void divergence(const char* what) {
    say("block (%u,%u,%u): %s: ", emulated_blockIdx.x, emulated_blockIdx.y, emulated_blockIdx.z, what);
    say_waiting();
    fail();
}

void on_signal(int number, siginfo_t* info, void*) {
    if (!pthread_equal(pthread_self(), launcher)) {
        signal(number, SIG_DFL);
        return;
    }
    touched = info->si_addr;
    siglongjmp(stop, number + 1);
}

// ---- fixed shared memory

struct Memory { void* start; size_t bytes; };
extern Memory fixed_memory;  // of the running launch
extern bool watched;

// The thread local memory of the library that owns the byte at `start`.
int fixed_shared_of(dl_phdr_info* library, size_t, void* wanted) {
    Memory& memory = *static_cast<Memory*>(wanted);
    char* at = static_cast<char*>(library->dlpi_tls_data);
    for (int i = 0; at && i < library->dlpi_phnum; ++i) {
        const auto& segment = library->dlpi_phdr[i];
        if (segment.p_type != PT_TLS || memory.start < at || memory.start >= at + segment.p_memsz) continue;
        memory = {at, segment.p_memsz};
        return 1;
    }
    return 0;
}

void check_margin(unsigned shared) {
    const unsigned char* margin = emulated_dynamic_shared + shared;
    if (margin[0] == POISON && memcmp(margin, margin + 1, MARGIN - 1) == 0) return;
    while (*margin == POISON) ++margin;
    say("block (%u,%u,%u): byte %td of dynamic shared memory was written, the launch has %u", emulated_blockIdx.x,
        emulated_blockIdx.y, emulated_blockIdx.z, margin - emulated_dynamic_shared, shared);
    fail();
}

void end_block() {
    forget_async();
    end_copies();
    end_products();
    check_margin(dynamic_bytes);
}

// ---- whose turn it is

void select(int i) {
    current = i;
    emulated_threadIdx = thread[i].index;
}

// The next thread of this round that can run, or -1.
int next_ready(int after) {
    const int step = backward ? -1 : 1;
    for (int i = after + step; i >= 0 && i < count; i += step)
        if (thread[i].state == READY) return i;
    return -1;
}

// Straight to the next thread: threads that wait at one place then return through the same calls, as the
// processor expects. The scheduler itself runs between rounds.
void give_way() {
    const int from = current, to = next_ready(from);
    if (to >= 0) select(to);
    leave(from, to);
}

// ---- waiting

void wait(State state, const char* name, int line) {
    Thread& t = thread[current];
    t.state = state, t.name = name, t.line = line;
    give_way();
}

void release(State from, int barrier) {
    for (int i = 0; i < count; ++i)
        if (thread[i].state == from && (from == AT_BARRIER || thread[i].barrier == barrier)) thread[i].state = READY;
}

bool open_block_barrier() {
    if (arrived == 0 || arrived + (early_exit ? exited : 0) < count) return false;
    const Thread* first = nullptr;
    for (int i = 0; i < count; ++i) {
        if (thread[i].state != AT_BARRIER) continue;
        if (!first) first = &thread[i];
        if (thread[i].line != first->line) divergence("threads wait at different barriers");
    }
    for (int i = 0; i < count; ++i) {
        const EmulatedVote vote = thread[i].vote;
        thread[i].answer = vote == EMULATED_OR ? vote_any : vote == EMULATED_AND ? vote_all : vote_count;
    }
    order_block();
    release(AT_BARRIER, 0);
    arrived = vote_any = vote_count = 0;
    vote_all = 1;
    return true;
}

// Does the work of thread i's meeting if everybody is there.
bool open_meeting(int i) {
    const Thread& t = thread[i];
    const int first = i / t.threads * t.threads, warps = t.threads / WARP;
    for (int w = 0; w < warps; ++w) {
        const unsigned expected = t.mask & present[first / WARP + w];
        if ((in_meeting[first / WARP + w] & expected) != expected) return false;
    }
    void* places[MAX_THREADS] = {};
    for (int p = 0; p < t.threads && first + p < count; ++p) {
        const Thread& other = thread[first + p];
        if (!(t.mask >> p % WARP & 1) || other.state == EXITED) continue;
        if (other.mask != t.mask || other.threads != t.threads) return false;
        if (other.work != t.work || other.line != t.line) divergence("threads of a warp meet at different calls");
        places[p] = other.mine;
    }
    for (int p = 0; p < t.threads; ++p)
        if (places[p]) {
            thread[first + p].state = READY;
            in_meeting[(first + p) / WARP] &= ~(1u << p % WARP);
        }
    order_warps(first, t.threads);
    t.work(places, t.mask & present[first / WARP]);
    return true;
}

void thread_exits() {
    Thread& t = thread[current];
    t.state = EXITED;
    ++exited;
    progress = true;
    present[current / WARP] &= ~(1u << current % WARP);
    for (int i = 0; i < count; ++i)  // others may have waited for this one only
        if (thread[i].state == MEETING && current / thread[i].threads == i / thread[i].threads) open_meeting(i);
    if (early_exit) open_block_barrier();
}

void fiber() {
    entry(params);
    thread_exits();
    give_way();
}

// ---- blocks

void begin_block() {
    exited = arrived = vote_any = vote_count = 0;
    vote_all = 1;
    memset(named, 0, sizeof named);
    memset(in_meeting, 0, sizeof in_meeting);
    memset(present, 0, sizeof present);
    for (int i = 0; i < count; ++i) {
        present[i / WARP] |= 1u << i % WARP;
        thread[i].state = READY;
        prepare(i, fiber);
    }
}

// Each thread in turn, until it waits. False when nobody did more than yield.
bool run_round() {
    progress = false;
    const int first = next_ready(backward ? count : -1);
    if (first < 0) divergence(exited ? "some threads have exited, others wait for them" : "threads wait for each other");
    select(first);
    enter(first);
    return progress;
}

void run_block() {
    begin_block();
    long idle = 0;
    while (exited < count) {
        idle = run_round() ? 0 : idle + 1;
        if (idle > PATIENCE) divergence("no thread gets on");
    }
}

// ---- blocks that run at the same time

// A block that is not running: what there is one of for each block.
struct Block {
    uint3 index;
    std::vector<Thread> threads;
    std::vector<unsigned char> fixed, dynamic;
    std::vector<unsigned> meeting, there;
    std::vector<int> arrivals;  // of each thread at the cluster's barrier
    int exited, arrived, any, all, votes;
    decltype(named) barriers;

    void leave(const Memory& memory, unsigned shared) {
        const auto* start = static_cast<unsigned char*>(memory.start);
        threads.assign(thread, thread + count);
        fixed.assign(start, start + memory.bytes);
        dynamic.assign(emulated_dynamic_shared, emulated_dynamic_shared + shared + MARGIN);
        meeting.assign(in_meeting, in_meeting + MAX_THREADS / WARP);
        there.assign(present, present + MAX_THREADS / WARP);
        exited = ::exited, arrived = ::arrived, any = vote_any, all = vote_all, votes = vote_count;
        memcpy(&barriers, &named, sizeof named);
    }
    void enter(int number, const Memory& memory) const {
        emulated_blockIdx = index;
        first_stack = stacks + (size_t)number * count * STACK;
        std::copy(threads.begin(), threads.end(), thread);
        std::copy(fixed.begin(), fixed.end(), static_cast<unsigned char*>(memory.start));
        std::copy(dynamic.begin(), dynamic.end(), emulated_dynamic_shared);
        std::copy(meeting.begin(), meeting.end(), in_meeting);
        std::copy(there.begin(), there.end(), present);
        ::exited = exited, ::arrived = arrived, vote_any = any, vote_all = all, vote_count = votes;
        memcpy(&named, &barriers, sizeof named);
    }
};

std::vector<Block> all;  // that run at the same time; a launch that fails leaves by longjmp
long running_block;      // of them

// Blocks from `first` on.
void run_together(const unsigned* grid, long first, long blocks, unsigned shared, const Memory& fixed) {
    if (blocks * count > TOGETHER) say("%ld blocks of %d threads do not run at the same time here", blocks, count), fail();
    all.assign(blocks, {});
    for (long b = 0; b < blocks; ++b) {
        const long n = first + b;
        all[b].index = {unsigned(n % grid[0]), unsigned(n / grid[0] % grid[1]), unsigned(n / grid[0] / grid[1])};
        all[b].arrivals.assign(count, 0);
        first_stack = stacks + b * count * STACK;
        memset(fixed.start, POISON, fixed.bytes);
        memset(emulated_dynamic_shared, POISON, shared + MARGIN);
        begin_block();
        all[b].leave(fixed, shared);
    }
    long running = blocks, idle = 0;
    while (running > 0) {
        bool any = false;
        for (long k = 0; k < blocks; ++k) {
            const long b = backward ? blocks - 1 - k : k;
            if (all[b].exited == count) continue;
            running_block = b;
            all[b].enter((int)b, fixed);
            while (exited < count && run_round()) any = true;
            if (exited == count) --running, any = true, end_block();
            else land_all();
            all[b].leave(fixed, shared);
        }
        idle = any ? 0 : idle + 1;
        if (idle > 64) divergence("no block gets on");
    }
}

void run_block_without_waiting() {
    for (int k = 0; k < count; ++k) {
        select(backward ? count - 1 - k : k);
        entry(params);
    }
}

}  // namespace

extern "C" {

uint3 emulated_threadIdx, emulated_blockIdx;
EmulatedExtent emulated_blockDim, emulated_gridDim;
alignas(4096) unsigned char emulated_dynamic_shared[SHARED + MARGIN];

int emulated_block_barrier(EmulatedVote vote, int predicate, const char* name, int line) {
    Thread& t = thread[current];
    t.vote = vote;
    if (predicate) vote_any = 1, ++vote_count;
    else vote_all = 0;
    ++arrived;
    t.state = AT_BARRIER, t.name = name, t.line = line;
    progress = true;
    if (!open_block_barrier()) give_way();
    return t.answer;
}

void emulated_named_barrier(int id, int threads, int waits, const char* name, int line) {
    if (id < 0 || id >= NAMED) emulated_stop("a named barrier has a number from 0 to 15", line);
    auto& barrier = named[id];
    if (barrier.arrived && barrier.threads != threads) emulated_stop("a named barrier got two counts", line);
    barrier.threads = threads;
    progress = true;
    const bool complete = ++barrier.arrived == threads;
    if (complete) {
        barrier.arrived = 0;
        order_block();
        release(AT_NAMED, id);
    } else if (waits) {
        thread[current].barrier = id;
        wait(AT_NAMED, name, line);
    }
}

void emulated_meet(int threads, unsigned mask, void* mine, EmulatedWork* work, const char* name, int line) {
    if (!(mask >> current % WARP & 1)) emulated_stop("the calling lane is not in the mask", line);
    Thread& t = thread[current];
    t.threads = threads, t.mask = mask, t.mine = mine, t.work = work;
    t.state = MEETING, t.name = name, t.line = line;
    in_meeting[current / WARP] |= 1u << current % WARP;
    progress = true;
    if (!open_meeting(current)) give_way();
}

void emulated_yield(void) { give_way(); }

void emulated_cluster_arrive(void) {
    if (all.empty()) emulated_stop("a block outside of a cluster arrives at the cluster's barrier", 0);
    ++all[running_block].arrivals[current];
    progress = true;
}
void emulated_cluster_wait(void) {
    const auto is_met = [] {
        const int wanted = all[running_block].arrivals[current];
        for (long b = 0; b < (long)all.size(); ++b)
            for (int i = 0; i < count; ++i) {
                const State state = b == running_block ? thread[i].state : all[b].threads[i].state;
                if (state != EXITED && all[b].arrivals[i] < wanted) return false;
            }
        return true;
    };
    while (!is_met()) give_way();
    progress = true;
}

unsigned emulated_lanes_present(void) { return present[current / WARP]; }

void emulated_stop(const char* what, int line) {
    say_where();
    say("%s (line %d)", what, line);
    fail();
}

// 0, or 1 with a message in `said`; *address is what was touched where memory was not accessible.
int emulated_launch(void (*kernel)(const void*), const void* arguments, const unsigned* grid, const unsigned* block,
                    unsigned shared, void* (*fixed_shared)(void), int fibers, int together, int last_first,
                    int exits_allowed, int is_watched, char* said, size_t room, void** address) {
    std::lock_guard<std::mutex> alone(one_launch);
    written = 0, message[0] = 0, touched = nullptr;
    entry = kernel, params = arguments, early_exit = exits_allowed, backward = last_first, watched = is_watched;
    emulated_gridDim = {grid[0], grid[1], grid[2]};
    emulated_blockDim = {block[0], block[1], block[2]};
    count = int(block[0] * block[1] * block[2]);
    dynamic_bytes = shared;
    forget_copies();
    forget_products();
    forget_async();
    for (int i = 0; i < count; ++i)
        thread[i].index = {i % block[0], i / block[0] % block[1], i / (block[0] * block[1])};

    static char* signal_stack = static_cast<char*>(malloc(64 * 1024));
    stack_t alternative = {}, old_alternative;
    alternative.ss_sp = signal_stack, alternative.ss_size = 64 * 1024;
    sigaltstack(&alternative, &old_alternative);
    struct sigaction action = {}, old[3];
    const int signals[3] = {SIGSEGV, SIGBUS, SIGFPE};
    action.sa_sigaction = on_signal, action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    launcher = pthread_self();
    Memory fixed = {fixed_shared(), 0};
    dl_iterate_phdr(fixed_shared_of, &fixed);
    fixed_memory = fixed;
    for (int i = 0; i < 3; ++i) sigaction(signals[i], &action, &old[i]);

    const int failure = sigsetjmp(stop, 1);
    if (failure == 0) {
        if (fibers && !make_stacks()) say("no memory for the stacks"), fail();
        first_stack = stacks;
        const long blocks = (long)grid[0] * grid[1] * grid[2], side_by_side = together == 1 ? blocks : together;
        if (together > 1 && blocks % together) say("%ld blocks are no whole number of clusters of %d", blocks, together), fail();
        all.clear();
        if (fibers && together)
            for (long first = 0; first < blocks; first += side_by_side) run_together(grid, first, side_by_side, shared, fixed);
        else for (unsigned z = 0; z < grid[2]; ++z)
            for (unsigned y = 0; y < grid[1]; ++y)
                for (unsigned x = 0; x < grid[0]; ++x) {
                    emulated_blockIdx = {x, y, z};
                    memset(fixed.start, POISON, fixed.bytes);
                    memset(emulated_dynamic_shared, POISON, shared + MARGIN);
                    if (fibers) run_block();
                    else run_block_without_waiting();
                    end_block();
                }
    } else if (failure > 1) {
        say_where();
        if (failure - 1 == SIGFPE) say("integer division by zero, or of the lowest integer by -1");
        else if (stacks && touched >= stacks && touched < stacks + TOGETHER * STACK)
            say("the thread's stack (256 KiB) is full");
        else say("memory at %p is not accessible", touched), *address = touched;
    }

    for (int i = 0; i < 3; ++i) sigaction(signals[i], &old[i], nullptr);
    sigaltstack(&old_alternative, nullptr);
    snprintf(said, room, "%s", message);
    return failure != 0;
}

// Memory whose end, rounded up to 16 bytes, lies at the end of the accessible pages.
void* emulated_guarded(size_t bytes) {
    const size_t inner = (bytes + PAGE - 1) / PAGE * PAGE;
    char* area = static_cast<char*>(mmap(nullptr, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (area == MAP_FAILED) return nullptr;
    mprotect(area + PAGE, inner, PROT_READ | PROT_WRITE);
    return area + PAGE;
}
void emulated_release(void* area, size_t bytes) {
    munmap(static_cast<char*>(area) - PAGE, (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE);
}
}
