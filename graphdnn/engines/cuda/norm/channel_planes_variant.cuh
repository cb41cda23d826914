// The direction of a normalization, and where the partial sums of a channel meet.
//
// Required constants (from the generator): NORM_BACKWARD: 1 for a gradient. PLANES_MEET: 0: in one CTA; 1: in a cluster;
// 2: in the workspace, where a second launch reads them.

#if NORM_BACKWARD
#include "channel_planes_backward.cuh"
#else
#include "channel_planes_forward.cuh"
#endif
#if PLANES_MEET == 0
#include "channel_planes_one_cta.cuh"
#elif PLANES_MEET == 1
#include "channel_planes_cluster.cuh"
#else
#include "channel_planes_workspace.cuh"
#endif
