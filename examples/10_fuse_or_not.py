"""A framework has kernels of its own for bias, addition and activation. When should this library compute them?"""

import numpy as np

import graphdnn


def layer(device, n, types):
    """A convolution, then what a framework would do with a fused kernel of its own: bias, residual, ReLU."""
    graph = graphdnn.Graph("layer", **types, device=device)
    x, w = graph.tensor([n, 64, 28, 28], name="x"), graph.tensor([64, 64, 3, 3], name="w")
    b, z = graph.tensor([1, 64, 1, 1], name="b"), graph.tensor([n, 64, 28, 28], name="z")
    sums = graph.conv_fprop(x, w, padding=[1, 1], name="conv").set_name("sums")
    y = graph.relu(graph.add(graph.bias(sums, b), z)).set_output(True).set_name("y")
    return graph, {"x": x, "w": w, "b": b, "z": z, "sums": sums, "y": y}


half = {"io_data_type": "float16", "intermediate_data_type": "float16", "compute_data_type": "float32"}

# Each place where the framework could take over, what both parts take there, and whether the whole is worth keeping.
graph, tensors = layer("h200", 64, half)
cuts = graph.cuts()
print(cuts)
tail = cuts.at(tensors["sums"].get_uid())
print(f"whole {cuts.whole.seconds * 1e6:.1f} us; convolution {tail.before.fused.seconds * 1e6:.1f} us, then")
print(f"  one kernel for all the rest {tail.after.fused.seconds * 1e6:.1f} us: keeping the graph whole {tail.verdict}")
print(f"  one kernel for each operation {tail.after.unfused.seconds * 1e6:.1f} us: {tail.unfused_after}")
print(f"  your own kernel, which you timed at 12 us: {tail.against(12e-6)}")
print(f"the whole saves {tail.bytes_saved / 2**20:.1f} MiB of traffic and {tail.launches_saved} launch", end="\n\n")

# A fusion may also hurt: before a 3x3 convolution, a chain keeps the operand from the fastest engines. Here one engine
# computes such chains ahead, in a launch of its own; without it, this is what one would see.
graph = graphdnn.Graph("prologue", **half, device="h200")
x = graph.tensor([64, 256, 28, 28], stride=[256 * 28 * 28, 1, 28 * 256, 256], name="x")
w = graph.tensor([256, 256, 3, 3], stride=[256 * 9, 1, 3 * 256, 256], name="w")
scale, shift = (graph.tensor([1, 256, 1, 1], name=name) for name in ("scale", "shift"))
graph.conv_fprop(graph.relu(graph.add(graph.mul(x, scale), shift)), w, padding=[1, 1]).set_output(True)
print(f"as it is: {graph.cuts()[2]}")
graph.deselect_engines(["cuda_materialized_prologue"])
worst = graph.cuts().best
print(worst)
graph.limit_fusion(forbid=worst.limits.forbid)  # one plan all the same, with a kernel on each side of the cut
print([op.name for op in graph.fused], end="\n\n")

# Both sides are graphs. Here the library computes the first one, and NumPy stands for the framework's own kernel.
graph, tensors = layer("cpu", 2, {"io_data_type": "float32", "compute_data_type": "float32"})
cut = graph.cuts().at(tensors["sums"].get_uid())
first = graphdnn.build(cut.first)
rng = np.random.default_rng(0)
values = {t: rng.standard_normal(tensors[t].get_dim()).astype(np.float32) for t in ("x", "w", "b", "z")}
sums = np.empty(tensors["sums"].get_dim(), np.float32)
given = {tensors[t].get_uid(): values[t] for t in ("x", "w")}
first.execute({**given, tensors["sums"].get_uid(): sums}, first.new_workspace())
mine = np.maximum(sums + values["b"] + values["z"], 0)
whole = graph.run({tensors[t]: values[t] for t in values})[tensors["y"]]
print("first part here, the rest elsewhere: the same result:", np.allclose(mine, whole, rtol=1e-5, atol=1e-5))
