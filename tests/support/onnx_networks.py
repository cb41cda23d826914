"""The "real" networks of ONNX's tests, whose weights are constants, with weights drawn from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NETWORKS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
_MEAN_OF_ONE, _POSITIVE = 1, 4  # operands of a BatchNormalization: scale and variance


def network(name: str, seed: int = 0) -> Any:
    """The network with weights that keep the size of activations, and with the output before its softmax."""
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    graph = model.graph
    rng = np.random.default_rng(seed)
    extents = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    readers = {name: (node, i) for node in graph.node for i, name in enumerate(node.input)}
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in extents:
            kept.append(node)
            continue
        dims = tuple(int(d) for d in extents[node.input[0]])
        array = _drawn(rng, dims, *readers[node.output[0]])
        graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    last = kept[-1]
    if last.op_type == "Softmax":  # a softmax of large numbers is 0 and 1 whatever they are
        graph.output.append(onnx.helper.make_empty_tensor_value_info(last.input[0]))
        graph.output[-1].CopyFrom(graph.output[0])
        graph.output[-1].name = last.input[0]
        del graph.output[0]
        del graph.node[-1]
    model.ir_version = 8
    return model


def _drawn(rng: np.random.Generator, dims: tuple[int, ...], reader: Any, place: int) -> np.ndarray:
    array = rng.standard_normal(dims)
    if len(dims) > 1:
        return array * np.sqrt(2 / np.prod(dims[1:]))
    if reader.op_type == "BatchNormalization" and place == _POSITIVE:
        return np.abs(array) + 0.5
    return 0.1 * array + (reader.op_type == "BatchNormalization" and place == _MEAN_OF_ONE)
