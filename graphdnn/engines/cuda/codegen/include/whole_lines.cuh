// Loads of predicated_load.cuh bring whole 128-byte lines into L2, because other threads soon read the other sectors of a line.

#define LOAD_IF_HINT ".L2::128B"
