// The direction of a normalization in one pass.
//
// Required constants (from the generator): NORM_BACKWARD: 1 for a gradient.

#if NORM_BACKWARD
#include "norm_persistent_backward.cuh"
#else
#include "norm_persistent_forward.cuh"
#endif
