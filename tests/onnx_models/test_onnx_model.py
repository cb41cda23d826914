"""A model from its bytes to its outputs, and every node that is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx_models import conv_relu, info, model, onnxruntime_results, reference_results

onnx = pytest.importorskip("onnx.reference", reason="the package onnx is not installed")
from onnx import helper

import graphdnn.onnx
from graphdnn import BadParam, NotSupported

X = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)


def test_conv_relu_is_one_kernel_with_the_values_of_others() -> None:
    proto = conv_relu()
    network = graphdnn.onnx.load(proto.SerializeToString())
    (y,) = network.run({"x": X}).values()
    np.testing.assert_allclose(y, reference_results(proto, {"x": X})[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(y, onnxruntime_results(proto, {"x": X})[0], rtol=1e-4, atol=1e-4)
    assert "2 nodes as a graph, 1 kernel" in network.explain()
    assert "conv_fprop 'conv1' + add 'conv1' + relu_fwd 'relu1'" in network.explain()


def test_every_unserved_node_is_named_at_once() -> None:
    proto = _with_unserved_nodes()
    with pytest.raises(NotSupported) as caught:
        graphdnn.onnx.load(proto)
    assert [r.where for r in caught.value.rejections] == ["node 'nz' (NonZero)", "node 'unique' (Unique)"]
    for rejection in caught.value.rejections:
        assert rejection.attribute == "op_type"
        assert rejection.expected
        assert rejection.reason
        assert "reference" in rejection.fix


def test_reference_runs_only_where_it_is_asked_for_and_explain_says_so() -> None:
    proto = _with_unserved_nodes()
    network = graphdnn.onnx.load(proto, fallback="reference")
    found = network.run({"x": X})
    for name, expected in zip(("y", "z", "u"), reference_results(proto, {"x": X}), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)
    assert network.explain().count("by ONNX's reference evaluator") == 2
    assert "no lowering is written" in network.explain()


def _with_unserved_nodes() -> object:
    proto = conv_relu()
    proto.graph.node.append(helper.make_node("NonZero", ["y"], ["z"], name="nz"))
    proto.graph.node.append(helper.make_node("Unique", ["y"], ["u"], name="unique"))
    proto.graph.output.append(info("z", np.int64, ["rank", "count"]))
    proto.graph.output.append(info("u", np.float32, ["unique"]))
    return proto


def test_groups_are_convex() -> None:
    """x -> a -> unserved -> b and a -> b: a and b may not be one graph."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Unique", ["a"], ["u"], name="unique"),
        helper.make_node("ReduceMax", ["u"], ["m"], keepdims=0),
        helper.make_node("Sub", ["a", "m"], ["y"]),
    ]
    proto = model(nodes, [info("x", np.float32, [4, 4])], [info("y", np.float32, [4, 4])])
    x = np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32)
    network = graphdnn.onnx.load(proto, fallback="reference")
    np.testing.assert_allclose(network.run({"x": x})["y"], reference_results(proto, {"x": x})[0])


@pytest.mark.parametrize(
    ("feeds", "rule"),
    [
        ({}, "onnx.input.name"),
        ({"x": X, "z": X}, "onnx.input.name"),
        ({"x": X.astype(np.float64)}, "onnx.input.type"),
        ({"x": X[0]}, "onnx.input.shape"),
        ({"x": X[:, :2]}, "onnx.input.shape"),
    ],
)
def test_wrong_inputs_are_refused_by_name(feeds: dict[str, np.ndarray], rule: str) -> None:
    with pytest.raises(BadParam) as caught:
        graphdnn.onnx.load(conv_relu()).run(feeds)
    assert {r.rule for r in caught.value.rejections} == {rule}


def test_other_wrong_arguments() -> None:
    network = graphdnn.onnx.load(conv_relu())
    with pytest.raises(BadParam, match=r"onnx\.output\.name"):
        network.run({"x": X}, ["none"])
    with pytest.raises(BadParam, match=r"onnx\.fallback"):
        graphdnn.onnx.load(conv_relu(), fallback="onnxruntime")
    with pytest.raises(BadParam, match=r"onnx\.model\.path"):
        graphdnn.onnx.load(3)


def test_without_the_package() -> None:
    """Every module can be imported; ``load`` says what is missing."""
    code = """
import sys
sys.modules["onnx"] = None
import importlib, pkgutil
import graphdnn.onnx
for module in pkgutil.walk_packages(graphdnn.onnx.__path__, "graphdnn.onnx."):
    importlib.import_module(module.name)
try:
    graphdnn.onnx.load(b"")
except graphdnn.onnx.model.NotSupported as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "onnx.package" in run.stdout
    assert "pip install 'graphdnn[onnx]'" in run.stdout
