"""What was fused, why the rest was not, and which edit would fuse it. Nothing is compiled: the ranking is enough."""

import json

import graphdnn
from graphdnn.analysis import repairs
from graphdnn.files import graph_to_dict

# An activation in front of a convolution, and its result kept in memory although only the convolution reads it.
graph = graphdnn.Graph("block", io_data_type="float16", device="h200")
x = graph.tensor([8, 60, 28, 28], name="x")
w = graph.tensor([64, 60, 3, 3], name="w")
b = graph.tensor([1, 64, 1, 1], name="b")
act = graph.relu(x, name="act").set_output(True)
y = graph.relu(graph.bias(graph.conv_fprop(act, w, padding=[1, 1], name="conv"), b), name="out").set_output(True)
ranking = graph.ranking  # for a device that need not be here

print("What was fused:")
for kernel in ranking.fused:
    print("  one kernel:", " + ".join(op.label() for op in kernel.operations))

print("\nWhy the rest was not:")
for entry in graph.refusals(kind="edge"):
    print(f"  {entry.subject.text} ({', '.join(entry.subject.origins)})")
    print(f"    found {entry.actual}, required {entry.required}: {entry.reason}")
    print(f"    rule {entry.rule}, {entry.documented}")

print("\nWhy not this engine:")
for entry in graph.refusals(engine="cuda_hopper_halo", kind="engine"):
    print(f"  {entry.subject.text}: {entry.attribute} = {entry.actual}, required {entry.required}")

print("\nEdits that help; each was tried:")
for i, repair in enumerate(graph.repairs(), start=1):
    print(f"  {i}. {repair.words}\n     {repair.gain}")

best = graph.repairs()[0]
print("\nAfter the first one:")
print(" ", "; ".join(" + ".join(op.label() for op in kernel.operations) for kernel in graphdnn.fuse(best.graph)))
print("  rule that no longer stops it:", ", ".join(best.mends))

# The same where a mistake is in the way of a graph: the file of the graph above, with a wrong extent.
data = graph_to_dict(ranking.fused.graph)
next(t for t in data["tensors"] if t.get("name") == "w")["dims"][1] = 61
try:
    graphdnn.graph_from_json(json.dumps(data))
except graphdnn.GraphdnnError as error:
    print("\nA graph that is refused:", error.rejections[0].rule)
first = repairs.of_data(data, "h200")[0]
print(" ", first.words)
for line in first.changes:
    print("   ", line)
print("  the graph from before:", first.graph.key == ranking.fused.graph.key)
