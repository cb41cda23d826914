"""Layers in another library's words, their plans for an absent GPU under lock, and a graph made small."""

import graphdnn
from graphdnn import ReductionOperator, __version__, device_spec
from graphdnn.importers import read
from graphdnn.locks import check, lock_from_json, lock_of
from graphdnn.pytest_plugin import assert_fused
from graphdnn.reducer import by_rule, reduce

# Lines of oneDNN's benchdnn. What a graph cannot express is said, never left out.
lines = """--reset --dt=f16 --dir=FWD_B --stag=nhwc --wtag=ohwi --attr-post-ops=relu
mb64ic64ih56oc64oh56kh3ph1n"conv2_2"
mb64ic256ih56oc128oh56kh1n"conv3_1"
--attr-zero-points=src:common:2 mb64ic64ih56oc64oh56kh3ph1n"quantized"
"""
imported = read(lines)
for problem in imported.problems:
    print(f"{problem.comment}: {problem.text}")
for refusal in imported.refused:
    print(f"{refusal.where}: {refusal.attribute} is refused: {refusal.reason}")

# What is decided for them on an H200. The text is a file to keep beside the code.
graphs = {problem.name: problem.graph for problem in imported.problems}
lock = lock_of(graphs, device_spec("h200"), {p.name: p.text for p in imported.problems}, __version__)
for entry in lock.graphs:
    print(f"\n{entry.name}: {entry.kernels[0].name} by {entry.kernels[0].engine}")
    assert_fused(graphs[entry.name], "conv+bias+relu")
print(f"moved: {len(check(lock, __version__).movements)}")

# A lock of a day when another engine was thought to serve the first layer.
old = lock.to_json().replace(f'"engine": "{lock.graphs[0].kernels[0].engine}"', '"engine": "cuda_direct"', 1)
for movement in check(lock_from_json(old), __version__).movements:
    print(f"\n{movement}")

# Why are these two kernels? The smallest graph in which the same rule keeps an edge unfused.
graph = graphdnn.Graph("centred", io_data_type="float16", compute_data_type="float32")
x, w, b = graph.tensor([8, 64, 56, 56]), graph.tensor([64, 64, 3, 3]), graph.tensor([1, 64, 1, 1])
convolved = graph.relu(graph.bias(graph.conv_fprop(x, w, padding=[1, 1]), b))
mean = graph.reduction(convolved, ReductionOperator.AVG).set_dim([1, 64, 1, 1])
graph.sub(convolved, mean).set_output(True)
(stop, *_) = graph.fused.stopped_by
reduced = reduce(graph.build_operation_graph(), by_rule(stop.rule, device_spec("h200")))
print(f"\n{stop.rule} in {len(graph.fused.graph.operations)} operations, and in these:")
for operation in reduced.graph.operations:
    print(f"  {operation.label()}: {', '.join(str(list(t.dims)) for t in operation.inputs().values())}")
print(f"locally minimal: {reduced.is_minimal}")
