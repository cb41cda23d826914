"""What is inside a plan: its kernels, the values that never reach memory, and how wrong a result can be."""

import numpy as np

import graphdnn


def layer(data_type, device=None, **types):
    graph = graphdnn.Graph("layer", io_data_type=data_type, **types, device=device)
    x, w = graph.tensor([4, 64, 14, 14], name="x"), graph.tensor([64, 64, 3, 3], name="w")
    sums = graph.conv_fprop(x, w, padding=[1, 1], name="conv").set_name("sums")
    y = graph.relu(sums, name="act").set_output(True).set_name("y")
    graph.build()
    return graph, x, w, sums, y


# The kernel, for a GPU that need not be here: text, registers, occupancy, and the tensor that vanished.
try:
    graph, _, _, sums, _ = layer("float16", "h200", compute_data_type="float32")
except graphdnn.NotSupported as error:  # NVRTC is an extra, and the message names it
    print(error)
else:
    (kernel,) = graph.kernels
    print(kernel)
    for place in graph.where(sums):
        print(place)

# The values in its registers, here on the host: the same bits as in the plan, and right.
graph, x, w, sums, y = layer("float16", compute_data_type="float32")
rng = np.random.default_rng(0)
data = {t: rng.standard_normal(t.get_dim()).astype(np.float16) for t in (x, w)}
trace = graph.trace(data)
inside = trace[sums.get_uid()]
print(f"\ninside: {inside.dtype} {inside.shape}, largest {inside.max():.2f}; y is its positive part:",
      bool((np.maximum(inside, 0).astype(np.float16) == trace[y.get_uid()]).all()))  # fmt: skip
print("first difference from the oracle:", trace.first_difference, "\n")

# How wrong can it be? For this data, and for all data in a range.
print(graph.certificate(data))
(output,) = graph.certificate(ranges={x: (-1, 1), w: (-0.1, 0.1)}).outputs
print(f"for any x in [-1, 1] and w in [-0.1, 0.1]: at most {output.worst:.3g}\n")

# Integers are exact. Whether a sum can leave 32 bits depends on ranges, and on the attribute that sets its type.
graph, x, w, _, _ = layer("int16")
print(graph.certificate().integers[0])
print(graph.certificate(ranges={x: (0, 255), w: (-100, 100)}).integers[0])
