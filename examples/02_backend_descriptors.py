"""The v8 backend API with raw descriptors, and the questions that people ask about it, answered by running them.

A grouped convolution is described, finalized, ranked and executed with the C calls. On the way:
what a uid is, whether it may be used again, how groups are given, and what SPATIAL_DIMS means.
"""

# ruff: noqa: F403, F405  the star import gives the C names, as a C program sees them

import numpy as np

import graphdnn
from graphdnn.backend import *


def describe(kind, *attributes):
    """Create a descriptor, set (name, type, element, ...), finalize it."""
    descriptor = cudnnBackendCreateDescriptor(kind)
    for name, element_type, *elements in attributes:
        cudnnBackendSetAttribute(descriptor, name, element_type, len(elements), elements)
    cudnnBackendFinalize(descriptor)
    return descriptor


def tensor(uid, dims):
    strides = np.cumprod([1, *reversed(dims[1:])])[::-1]
    return describe(
        CUDNN_BACKEND_TENSOR_DESCRIPTOR,
        (CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid),
        (CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
        (CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, *dims),
        (CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, *strides),
        (CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 16),
    )


def convolution_settings(spatial_dims, *per_axis):
    """SPATIAL_DIMS is a number: how many spatial axes there are. The lists have one entry for each of them."""
    ones = per_axis or (1,) * spatial_dims
    return describe(
        CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        (CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
        (CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION),
        (CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, spatial_dims),
        (CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, *ones),
        (CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, *ones),
        (CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, *ones),
        (CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, *ones),
    )


def convolution(x, w, y, settings=None):
    settings = settings or convolution_settings(2)
    child = CUDNN_TYPE_BACKEND_DESCRIPTOR
    return describe(
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, child, x),
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, child, w),
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, child, y),
        (CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, child, settings),
    )


def graph_of(handle, *operations):
    return describe(
        CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        (CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle),
        (CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, *operations),
    )


def best_plan(handle, graph):
    heuristics = describe(
        CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        (CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph),
        (CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_INSTANT),
    )
    config = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
    cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, [config])
    return describe(
        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
        (CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle),
        (CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, config),
    )


def execute(handle, plan, arrays):
    _, (size,) = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1)
    workspace = np.empty(size, np.uint8)
    pack = describe(
        CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
        (CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, *arrays),
        (CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, *arrays.values()),
        (CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace if size else None),
    )
    cudnnBackendExecute(handle, plan, pack)


def refusal(work):
    """The rejections of a call that is meant to fail."""
    try:
        work()
    except graphdnn.GraphdnnError as error:
        return error.rejections
    raise AssertionError("this should have been refused")


handle = cudnnCreate()
rng = np.random.default_rng(0)

# 1. What is a uid? A signed 64-bit integer: any one, also a negative one, or a character code as in old samples.
print("1. A uid is an int64. Text is refused:")
(problem,) = refusal(lambda: tensor("x", (1, 1, 4, 4)))
print(f"   {problem.reason}\n   fix: {problem.fix}")
X, W, Y = ord("x"), -1, 2**62

# 2. Can uids be used again in another graph? Yes: a uid has a meaning within its graph only.
#    Both graphs call their tensors X, W, Y, with other extents, and run side by side.
extents = [((1, 2, 5, 5), (3, 2, 3, 3), (1, 3, 5, 5)), ((2, 4, 9, 9), (6, 4, 3, 3), (2, 6, 9, 9))]
plans = [
    best_plan(handle, graph_of(handle, convolution(*map(tensor, (X, W, Y), dims)))) for dims in extents
]  # both exist before either runs
sums = []
for plan, dims in zip(plans, extents, strict=True):
    ones = [np.ones(d, np.float32) for d in dims]
    execute(handle, plan, dict(zip((X, W, Y), ones, strict=True)))
    sums.append(float(ones[2][0, 0, 2, 2]))
print(f"2. The same uids in two graphs: centre values {sums[0]:.0f} and {sums[1]:.0f} (2*9 and 4*9 products of ones)")

# 3. How are groups given? By an axis of the tensors: x [N, G, C, H, W], w [G, K, C, R, S], y [N, G, K, P, Q].
x = rng.standard_normal((2, 3, 4, 8, 8), np.float32)
w = rng.standard_normal((3, 5, 4, 3, 3), np.float32)
y = np.empty((2, 3, 5, 8, 8), np.float32)
grouped = convolution(tensor(X, x.shape), tensor(W, w.shape), tensor(Y, y.shape))
execute(handle, best_plan(handle, graph_of(handle, grouped)), {X: x, W: w, Y: y})
#    The form without that axis means the same: channels of x over channels of w is the number of groups.
flat = np.empty((2, 15, 8, 8), np.float32)
joined = convolution(tensor(X, (2, 12, 8, 8)), tensor(W, (15, 4, 3, 3)), tensor(Y, (2, 15, 8, 8)))
bindings = {X: x.reshape(2, 12, 8, 8), W: w.reshape(15, 4, 3, 3), Y: flat}
execute(handle, best_plan(handle, graph_of(handle, joined)), bindings)
same = np.array_equal(flat, y.reshape(flat.shape))
print(f"3. Groups are an axis: x [2,3,4,8,8] and x [2,12,8,8] with 3 groups give equal results: {same}")

# 4. What is SPATIAL_DIMS? The number of spatial axes: 2 for images, with or without a group axis. Not their extents.
print("4. SPATIAL_DIMS is a count. The extents instead of it are refused:")
(problem,) = refusal(lambda: convolution_settings(224, 1, 1))
print(f"   {problem.reason}")

# 5. BAD_PARAM when a convolution is finalized, and no word why? Here every reason comes with it.
print("5. A group axis in x but not in w:")
for problem in refusal(lambda: convolution(tensor(X, x.shape), tensor(W, (15, 4, 3, 3)), tensor(Y, y.shape))):
    print(f"   {problem.status.c_name} [{problem.rule}]: {problem.reason}\n   fix: {problem.fix}")

# 6. What has taken the place of CUDNN_TYPE_OPERATION? BACKEND_DESCRIPTOR: operations are descriptors (see graph_of).
#    And is there a way to see what was fused? The content of a finalized graph says it; 03_what_was_fused.py has more.
print("6. " + str(graph_of(handle, grouped).content.fused).replace("\n", "\n   "))
cudnnDestroy(handle)
