"""An ONNX model: its plans, what each node became, an unserved node with its reason, and the reference evaluator."""

import sys

import numpy as np

import graphdnn.onnx
from graphdnn import NotSupported

try:
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    print("this example needs onnx: pip install 'graphdnn[onnx]'")
    sys.exit()

# A small network with weights drawn from a seed: a convolution, its normalization and ReLU, pooling, a product.
rng = np.random.default_rng(0)
weights = {
    "w": rng.standard_normal((8, 3, 3, 3)),
    **{name: rng.random(8) + 0.5 for name in ("scale", "shift", "mean", "variance")},
    "matrix": rng.standard_normal((8, 4)),
}
nodes = [
    helper.make_node("Conv", ["image", "w"], ["sums"], name="conv", pads=[1, 1, 1, 1]),
    helper.make_node("BatchNormalization", ["sums", "scale", "shift", "mean", "variance"], ["scaled"], name="norm"),
    helper.make_node("Relu", ["scaled"], ["positive"], name="relu"),
    helper.make_node("GlobalAveragePool", ["positive"], ["means"], name="pool"),
    helper.make_node("Flatten", ["means"], ["features"], name="flatten"),
    helper.make_node("MatMul", ["features", "matrix"], ["scores"], name="classes"),
]
image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])
scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 4])
constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
graph = helper.make_graph(nodes, "classifier", [image], [scores], constants)
proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

model = graphdnn.onnx.load(proto)
for batch in (1, 8, 1):  # the third run reuses the plans of the first one
    found = model.run({"image": np.ones((batch, 3, 32, 32), np.float32)})["scores"]
    print(f"batch {batch}: scores {found.shape}, all rows equal: {bool(np.allclose(found, found[0], rtol=1e-5))}")
print(model.explain())

# A node without a lowering is refused with its reason; the reference evaluator runs it where that is asked for.
proto.graph.node.append(helper.make_node("NonZero", ["scores"], ["places"], name="places"))
proto.graph.output.append(helper.make_tensor_value_info("places", TensorProto.INT64, [2, "count"]))
data = {"image": np.ones((1, 3, 32, 32), np.float32)}
try:
    graphdnn.onnx.load(proto).run(data)
except NotSupported as error:
    print(error)
mixed = graphdnn.onnx.load(proto, fallback="reference")
print("places of nonzero scores:", mixed.run(data)["places"].shape)
print("by the reference evaluator:", "by ONNX's reference evaluator" in mixed.explain())
