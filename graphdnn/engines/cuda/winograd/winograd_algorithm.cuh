// The Winograd algorithm of a kernel: F(2x2, 3x3) or F(4x4, 3x3).
//
// Required constants (from the generator): WINOGRAD_TILE: rows and columns of an output tile, 2 or 4.

#if WINOGRAD_TILE == 2
#include "winograd_2x2.cuh"
#else
#include "winograd_4x4.cuh"
#endif
