"""Two questions from a forum: may two graphs use the same uids, and how is the number of groups set?"""

import numpy as np

import graphdnn
from graphdnn import TensorSpec, packed_strides


def spec(uid, dims, name):
    return TensorSpec(uid=uid, data_type="float32", dims=dims, strides=packed_strides(dims), name=name)


def convolution(name, x, w, **fields):
    graph = graphdnn.Graph(name, io_data_type="float32", compute_data_type="float32")
    x, w = (graph.tensor(t.dims, stride=t.strides, uid=t.uid, name=t.name) for t in (x, w))
    y = graph.conv_fprop(x, w, **fields).set_output(True).set_uid(3)
    return graph.build_operation_graph(), y


# A uid names a tensor within its graph. Another graph may use the same numbers for other tensors, and both plans live
# side by side: what an execution binds is looked up in the plan that executes.
small, _ = convolution("small", spec(1, (1, 4, 8, 8), "x"), spec(2, (6, 4, 3, 3), "w"), padding=[1, 1])
large, _ = convolution("large", spec(1, (2, 16, 12, 12), "x"), spec(2, (8, 16, 1, 1), "w"))
for graph in (small, large):
    plan = graphdnn.build(graph)
    arrays = {t.uid: np.ones(t.extents, np.float32) for t in graph.bound}
    plan.execute(arrays, plan.new_workspace())
    print(f"{graph.name}: uids {sorted(arrays)}, y is {arrays[3].shape}, its centre {arrays[3][0, 0, 4, 4]:g}")

# There is no attribute for groups: shapes say it. A filter that reads C / 4 of the channels makes four groups.
grouped, _ = convolution("grouped", spec(1, (2, 16, 8, 8), "x"), spec(2, (32, 4, 3, 3), "w"), padding=[1, 1])
(operation,) = grouped.operations
print(f"x has 16 channels, the filter reads 4: {operation.problem.groups} groups")

# Or the groups are an axis of their own in every tensor: [N, G, C, H, W] and [G, K, C, R, S]. It is the same problem,
# and with the same memory the same bits.
explicit, _ = convolution("explicit", spec(1, (2, 4, 4, 8, 8), "x"), spec(2, (4, 8, 4, 3, 3), "w"), padding=[1, 1])
draw = np.random.default_rng(0)
x, w = (draw.standard_normal(shape, np.float32) for shape in ((2, 16, 8, 8), (32, 4, 3, 3)))
flat, apart = np.empty((2, 32, 8, 8), np.float32), np.empty((2, 4, 8, 8, 8), np.float32)
for graph, arrays in (
    (grouped, {1: x, 2: w, 3: flat}),
    (explicit, {1: x.reshape(2, 4, 4, 8, 8), 2: w.reshape(4, 8, 4, 3, 3), 3: apart}),
):
    plan = graphdnn.build(graph)
    plan.execute(arrays, plan.new_workspace())
print("both forms give the same bits:", np.array_equal(flat, apart.reshape(flat.shape)))

# Shapes that fit no number of groups are refused with the sizes that would.
try:
    convolution("wrong", spec(1, (2, 16, 8, 8), "x"), spec(2, (32, 5, 3, 3), "w"), padding=[1, 1])
except graphdnn.BadParam as error:
    print(error)
