"""Small ONNX models for tests, and the answers of onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx.reference", reason="the package onnx is not installed")

import onnx
from onnx import helper


def info(name: str, dtype: Any, shape: Sequence[int | str | None]) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
    name: str = "network",
) -> Any:
    """A checked model of nodes, with constants as initializers."""
    initializers = [onnx.numpy_helper.from_array(array, key) for key, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), name, list(inputs), list(outputs), initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def conv_relu(batch: int | str = 1) -> Any:
    """A convolution with bias and ReLU, with weights drawn from a seed."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="relu1"),
    ]
    shapes = [info("x", np.float32, [batch, 3, 16, 16])], [info("y", np.float32, [batch, 8, 16, 16])]
    return model(nodes, *shapes, constants)


def onnxruntime_results(proto: Any, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of onnxruntime's CPU provider; the test is skipped where it is not installed."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def reference_results(proto: Any, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of ONNX's reference evaluator."""
    import onnx.reference

    return list(onnx.reference.ReferenceEvaluator(proto).run(None, dict(feeds)))
