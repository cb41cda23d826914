// What kernel text on the host asks of the scheduler. No standard header is included here or in cuda_on_host.h:
// kernel text defines int64_t and the like itself, and small text compiles fast.
#pragma once

struct uint3 { unsigned x, y, z; };

extern "C" {
extern uint3 emulated_threadIdx, emulated_blockIdx;
struct EmulatedExtent { unsigned x, y, z; };
extern EmulatedExtent emulated_blockDim, emulated_gridDim;
extern unsigned char emulated_dynamic_shared[];

enum EmulatedVote { EMULATED_NONE, EMULATED_OR, EMULATED_AND, EMULATED_COUNT };

// All threads of the block wait for each other; the answer is the vote over their predicates.
int emulated_block_barrier(EmulatedVote vote, int predicate, const char* name, int line);

// `bar.sync id, threads` and `bar.arrive id, threads`.
void emulated_named_barrier(int id, int threads, int waits, const char* name, int line);

// The threads that share `threads` consecutive places meet, of a single warp only those in `mask`: the last one to
// come calls work(places, present) once, places[i] being what the i-th thread handed in (null if it has exited).
typedef void EmulatedWork(void** places, unsigned present);
void emulated_meet(int threads, unsigned mask, void* mine, EmulatedWork* work, const char* name, int line);

// `cp.async`: what a thread copies lands when it waits for the group that it is in.
void emulated_copy_async(void* to, const void* from, int bytes, int is_inside);
void emulated_commit_copies(void);
void emulated_await_copies(int pending);

// Lets the other threads run. For loops that wait for another thread's write.
void emulated_yield(void);

unsigned emulated_lanes_present(void);
void emulated_stop(const char* message, int line);
}
