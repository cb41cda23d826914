// The direction of a normalization, and the scope in which the partial sums of a channel are combined.
//
// Required constants (from the generator): NORM_BACKWARD: 1 for a gradient. COMBINE_SCOPE: 0: in one CTA; 1: in a cluster;
// 2: in the workspace, where a second launch reads them.

#if NORM_BACKWARD
#include "channel_planes_backward.cuh"
#else
#include "channel_planes_forward.cuh"
#endif
#if COMBINE_SCOPE == 0
#include "channel_planes_one_cta.cuh"
#elif COMBINE_SCOPE == 1
#include "channel_planes_cluster.cuh"
#else
#include "channel_planes_workspace.cuh"
#endif
