"""A layer in a dozen lines: convolution, bias and ReLU become one kernel, checked against plain NumPy."""

import numpy as np

import graphdnn

graph = graphdnn.Graph("layer", io_data_type="float32")
x = graph.tensor([4, 16, 28, 28], name="x")
w = graph.tensor([32, 16, 3, 3], name="w")
b = graph.tensor([1, 32, 1, 1], name="b")
y = graph.relu(graph.bias(graph.conv_fprop(x, w, padding=[1, 1]), b)).set_output(True)

plan = graph.build()
print(plan)
for operations in plan.fused_operations:
    print("one kernel:", " + ".join(operations))

rng = np.random.default_rng(0)
arrays = {tensor: rng.standard_normal(tensor.get_dim(), np.float32) for tensor in (x, w, b)}
result = np.empty(y.get_dim(), np.float32)
graph.execute({**arrays, y: result})

# The definition: one term per filter tap.
padded = np.pad(arrays[x].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
expected = arrays[b].astype(np.float64) + np.zeros((4, 32, 28, 28))
for row, column in np.ndindex(3, 3):
    window = padded[:, :, row : row + 28, column : column + 28]
    expected += np.einsum("nchw,kc->nkhw", window, arrays[w][:, :, row, column], optimize=True)
expected = np.maximum(expected, 0)
print(f"largest difference from float64: {np.abs(result - expected).max():.1e}")
print("close:", np.allclose(result, expected, rtol=1e-5, atol=1e-4))
