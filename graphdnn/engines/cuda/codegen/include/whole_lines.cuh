// Loads of predicated_load.cuh bring whole lines into the second level of cache: who reads the rest of a line comes soon.

#define LOAD_IF_HINT ".L2::128B"
