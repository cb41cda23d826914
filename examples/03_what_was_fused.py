"""Which operations became one kernel, which did not, and why: as text to read and as data to test."""

import graphdnn
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.enums import ReductionOperator


def new_graph(name):
    graph = graphdnn.Graph(name, io_data_type="float16", intermediate_data_type="float32", compute_data_type="float32")
    return graph, graph.tensor([8, 64, 56, 56], name="x"), graph.tensor([64, 64, 3, 3], name="w")


# Everything that works on each element where it is joins the convolution: scale, bias, residual, activation.
graph, x, w = new_graph("residual")
scale, bias = (graph.tensor([1, 64, 1, 1], name=name) for name in ("scale", "bias"))
residual = graph.tensor([8, 64, 56, 56], name="residual")
convolved = graph.conv_fprop(x, w, padding=[1, 1], name="conv")
shifted = graph.bias(graph.scale(convolved, scale), bias)
graph.relu(graph.add(shifted, residual)).set_output(True)
residual_block = graph.fused
print(residual_block, end="\n\n")

# A value that is kept in memory as well does not stop the fusion: the kernel writes two tensors.
graph, x, w = new_graph("two outputs")
before = graph.conv_fprop(x, w, padding=[1, 1], name="conv").set_output(True).set_name("before")
graph.gelu(before).set_output(True).set_name("after")
print(graph.fused, end="\n\n")

# Statistics over the result stand at the exit; whatever needs them waits for the next kernel.
graph, x, w = new_graph("centred")
convolved = graph.conv_fprop(x, w, padding=[1, 1], name="conv")
mean = graph.reduction(convolved, ReductionOperator.AVG, name="mean").set_dim([1, 64, 1, 1])
graph.sub(convolved, mean, name="centre").set_output(True).set_name("y")
fused = graph.fused
print(fused, end="\n\n")

# The same as data, for a test that keeps a model fused.
for stop in fused.to_json()["stopped_by"]:
    print(f"{stop['rule']}: {stop['subject']}")
    print(f"  found {stop['actual']}, required {stop['required']}")
assert [len(op.operations) for op in fused] == [2, 1]

# What fusing is worth: memory moved by one kernel, and by one kernel for each operation.
together = sum(bytes_moved(op) for op in residual_block)
apart = sum(t.bytes for op in residual_block.graph.operations for t in op.tensors().values())
print(f"\nthe residual block moves {together / 2**20:.1f} MiB fused, {apart / 2**20:.1f} MiB operation by operation")
