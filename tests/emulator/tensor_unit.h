// What kernel text on the host uses of compute capability 9.0: barriers that count bytes, copies by tensor maps, and
// products of a warpgroup from shared memory. Addresses are those of the shared window, as PTX takes them.
#pragma once
#include "scheduler.h"

extern "C" {
unsigned emulated_shared_address(const void* p);

// mbarrier: a phase ends when `count` threads have arrived and the bytes that were announced have landed.
void emulated_mbarrier_init(unsigned barrier, int count);
void emulated_mbarrier_arrive(unsigned barrier, int bytes);
void emulated_mbarrier_wait(unsigned barrier, int parity);

// cp.async.bulk.tensor. Coordinates and offsets come innermost first. The bytes land when somebody waits for them;
// until then they are poison.
void emulated_tma_load_tile(unsigned to, const void* map, unsigned barrier, const int* at, int rank);
void emulated_tma_load_im2col(unsigned to, const void* map, unsigned barrier, const int* at, const int* offset, int rank);

// wgmma: sums are written no sooner than they are waited for, operands are read no sooner than that. Without `add` the
// sums begin anew.
void emulated_warpgroup_product(
    void* sum, unsigned long long a, unsigned long long b, int columns, const char* kind_a, const char* kind_b, int across_a,
    int across_b, int add
);
// The rows of a in the registers of their threads, four words each.
void emulated_warpgroup_product_of_registers(
    void* sum, const unsigned* a, unsigned long long b, int columns, const char* kind_a, const char* kind_b, int across_b, int add
);
void emulated_warpgroup_commit(void);
void emulated_warpgroup_wait(int left);

// barrier.cluster: a thread waits until all threads of the cluster that have not exited have arrived as often as it has.
void emulated_cluster_arrive(void);
void emulated_cluster_wait(void);
// To an address in the shared window of a block of the cluster.
void emulated_dsmem_store(unsigned to, int block, const void* from, int bytes);
}
