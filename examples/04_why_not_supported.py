"""A refusal is data: which attribute, which value, what was expected, why, and what to do instead."""

import numpy as np

import graphdnn
from graphdnn.enums import ConvolutionMode
from graphdnn.operations import ConvForward, ConvolutionSpec


def tensor(uid, dims, data_type="float32", **fields):
    return graphdnn.TensorSpec(
        uid=uid, data_type=data_type, dims=dims, strides=graphdnn.packed_strides(dims), name="xwy"[uid - 1], **fields
    )


def settings(**fields):
    usual = {
        "compute_type": "float32", "mode": ConvolutionMode.CROSS_CORRELATION, "spatial_dims": 2, "dilations": (1, 1),
        "filter_strides": (1, 1), "pre_paddings": (1, 1), "post_paddings": (1, 1),
    }  # fmt: skip
    return ConvolutionSpec(**{**usual, **fields})


def attempt(title, work):
    print(f"\n{title}")
    try:
        work()
    except graphdnn.GraphdnnError as error:
        print(f"{type(error).__name__}, status {error.status.c_name} ({int(error.status)})")
        for rejection in error.rejections:  # every problem at once, not the first one only
            print(f"  rule      {rejection.rule}")
            print(f"  attribute {rejection.attribute} = {rejection.shown_value}")
            print(f"  expected  {rejection.expected}")
            print(f"  why       {rejection.reason}")
            print(f"  fix       {rejection.fix}")
    else:
        print("  accepted")


x, w, y = tensor(1, (8, 64, 56, 56)), tensor(2, (128, 64, 3, 3)), tensor(3, (8, 128, 56, 56))

attempt("A stride that does not fit to y:", lambda: ConvForward(x=x, w=w, y=y, conv=settings(filter_strides=(2, 2))))
attempt(
    "Two mistakes in one descriptor are reported together:",
    lambda: settings(dilations=(0, 1), pre_paddings=(-1, 1)),
)
attempt(
    "An integer accumulator for floats:",
    lambda: ConvForward(x=x, w=w, y=tensor(3, y.dims, "int32"), conv=settings(compute_type="int32")),
)

graph = graphdnn.OperationGraph.of([ConvForward(x=x, w=w, y=y, conv=settings())])
plan = graphdnn.build(graph)
arrays = {1: np.zeros(x.dims, np.float64), 2: np.zeros((128, 3, 3, 64), np.float32), 3: np.zeros(y.dims, np.float32)}
attempt(
    "An execution with an array of another type, and one in another order:",
    lambda: plan.execute(arrays, plan.new_workspace()),
)

# Filters exclude engines; what they exclude is among the declined, with the filter's rule.
filters = graphdnn.Filters(workspace_limit=1024)
ranking = graphdnn.rank(graph, filters=filters)
print("\nEngines left under a workspace limit of 1 KiB:", [config.name for config in ranking])
for declined in ranking.declined:
    for rejection in declined.rejections:
        print(f"  {declined.engine.name} declined: {rejection.shown_value} bytes, expected {rejection.expected}")
