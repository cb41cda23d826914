"""BatchNormalization and Pad become part of a convolution, and everything that may not be merged stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_models import info, model, onnxruntime_results

onnx = pytest.importorskip("onnx.reference", reason="the package onnx is not installed")
from onnx import helper

import graphdnn.onnx

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 4, 9, 9)).astype(np.float32)
STATISTICS = {
    "scale": RNG.standard_normal(6).astype(np.float32),
    "shift": RNG.standard_normal(6).astype(np.float32),
    "mean": RNG.standard_normal(6).astype(np.float32),
    "variance": RNG.random(6).astype(np.float32) + 0.5,
}
NORM = helper.make_node("BatchNormalization", ["c", *STATISTICS], ["y"], name="norm")


def _run(nodes: list[Any], constants: dict[str, np.ndarray], extra: list[str] | None = None) -> tuple[str, float]:
    """explain(), and the largest difference from onnxruntime."""
    outputs = [info(name, np.float32, [f"{name}{i}" for i in range(4)]) for name in ["y", *(extra or [])]]
    proto = model(nodes, [info("x", np.float32, X.shape)], outputs, constants)
    network = graphdnn.onnx.load(proto)
    found = network.run({"x": X})
    expected = onnxruntime_results(proto, {"x": X})
    worst = max(float(np.abs(a - b).max()) for a, b in zip(found.values(), expected, strict=True))
    return network.explain(), worst


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_statistics_become_weights(op_type: str, group: int, bias: bool) -> None:
    shape = (6, 4 // group, 3, 3) if op_type == "Conv" else (4, 6 // group, 3, 3)
    constants = {"w": RNG.standard_normal(shape).astype(np.float32), **STATISTICS}
    if bias:
        constants["b"] = RNG.standard_normal(6).astype(np.float32)
    conv = helper.make_node(op_type, ["x", "w", *(["b"] if bias else [])], ["c"], name="conv", group=group)
    text, worst = _run([conv, NORM], constants)
    assert "merged: node 'norm' (BatchNormalization) is part of node 'conv'" in text
    assert worst < 1e-4


def test_a_convolution_with_another_reader_stays() -> None:
    constants = {"w": RNG.standard_normal((6, 4, 3, 3)).astype(np.float32), **STATISTICS}
    conv = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")
    text, worst = _run([conv, NORM], constants, extra=["c"])
    assert "merged" not in text
    assert worst < 1e-4


PADS = {
    "zeros": ([0, 0, 1, 2, 0, 0, 2, 1], None, "constant", True),
    "ones": ([0, 0, 1, 2, 0, 0, 2, 1], 1.0, "constant", False),
    "edges": ([0, 0, 1, 2, 0, 0, 2, 1], None, "edge", False),
    "cut": ([0, 0, -1, 2, 0, 0, 2, 1], None, "constant", False),
    "channels": ([0, 1, 0, 0, 0, 1, 0, 0], None, "constant", False),
}


@pytest.mark.parametrize("case", PADS)
def test_zeros_become_padding(case: str) -> None:
    pads, value, mode, is_merged = PADS[case]
    channels = 4 + pads[1] + pads[5]
    constants = {"w": RNG.standard_normal((6, channels, 3, 3)).astype(np.float32), "pads": np.array(pads, np.int64)}
    if value is not None:
        constants["value"] = np.array(value, np.float32)
    nodes = [
        helper.make_node("Pad", ["x", *[k for k in constants if k != "w"]], ["p"], name="pad", mode=mode),
        helper.make_node("Conv", ["p", "w"], ["y"], name="conv", pads=[1, 1, 1, 1]),
    ]
    text, worst = _run(nodes, constants)
    assert ("merged: node 'pad' (Pad) is part of node 'conv' (Conv)" in text) == is_merged
    assert worst < 1e-4
