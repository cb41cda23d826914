"""Shapes that are bound at run time: plans are reused, and inputs that decide shapes count by their values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import conv_relu, info, model, reference_results

onnx = pytest.importorskip("onnx.reference", reason="the package onnx is not installed")
from onnx import helper

import graphdnn.onnx
from graphdnn import BadParam, NotSupported

RNG = np.random.default_rng(4)


def test_plans_are_reused_by_shape() -> None:
    proto = conv_relu("batch")
    network = graphdnn.onnx.load(proto)
    programs = []
    for batch in (1, 3, 1):
        x = RNG.standard_normal((batch, 3, 16, 16)).astype(np.float32)
        programs.append(network.program({"x": x}))
        np.testing.assert_allclose(
            network.run({"x": x})["y"], reference_results(proto, {"x": x})[0], rtol=1e-4, atol=1e-4
        )
    assert programs[0] is programs[2]
    assert programs[0] is not programs[1]


def test_one_name_is_one_extent() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    proto = model(nodes, [info(n, np.float32, ["n", 2]) for n in "ab"], [info("y", np.float32, ["n", 2])])
    network = graphdnn.onnx.load(proto)
    with pytest.raises(BadParam, match=r"onnx\.input\.shape"):
        network.run({"a": np.ones((3, 2), np.float32), "b": np.ones((1, 2), np.float32)})


def test_an_input_that_decides_shapes_counts_by_its_value() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    proto = model(
        nodes, [info("x", np.float32, [4, 6]), info("s", np.int64, ["rank"])], [info("y", np.float32, ["a", "b"])]
    )
    network = graphdnn.onnx.load(proto)
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    for shape in ([8, 3], [3, 8], [8, 3]):
        found = network.run({"x": x, "s": np.array(shape, np.int64)})["y"]
        np.testing.assert_array_equal(found, np.maximum(x, 0).reshape(shape))
    assert len(network._programs) == 2


def test_data_never_count_by_value() -> None:
    """A large operand that decides a shape is refused: a plan for each value would be no plan."""
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", "i"])]
    shapes = [info("x", np.float32, [8]), info("k", np.int64, [1])]
    proto = model(nodes, shapes, [info("y", np.float32, ["n"]), info("i", np.int64, ["n"])])
    network = graphdnn.onnx.load(proto)
    x = np.arange(8, dtype=np.float32)
    for k in (2, 3):
        np.testing.assert_array_equal(network.run({"x": x, "k": np.array([k])})["y"], x[::-1][:k])
    assert network._by_value == {"k"}


def test_a_shape_that_data_decide_is_refused_with_the_operand() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], to=7),
        helper.make_node("Expand", ["c", "s"], ["y"], name="expand"),
    ]
    shapes = [info("x", np.float32, [5000])], [info("y", np.float32, [None] * 8)]
    proto = model(nodes, *shapes, {"c": np.ones(1, np.float32)})
    with pytest.raises(NotSupported) as caught:
        graphdnn.onnx.load(proto).run({"x": np.ones(5000, np.float32)})
    assert "onnx.value.unknown" in [r.rule for r in caught.value.rejections]


@pytest.mark.parametrize("condition", [False, True])
def test_branches_and_loops_by_known_conditions(condition: bool) -> None:
    def branch(name: str, op_type: str) -> object:
        return helper.make_graph([helper.make_node(op_type, ["x"], [name])], name, [], [info(name, np.float32, [3])])

    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Neg")),
    ]
    proto = model(nodes, [info("x", np.float32, [3]), info("c", bool, [])], [info("y", np.float32, [3])])
    feeds = {"x": np.array([-1, 0, 2], np.float32), "c": np.array(condition)}
    found = graphdnn.onnx.load(proto).run(feeds)["y"]
    np.testing.assert_array_equal(found, reference_results(proto, feeds)[0])


def test_scalars_and_empty_tensors() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Mul", ["s", "two"], ["y"]),
        helper.make_node("Concat", ["x", "none"], ["z"], axis=0),
    ]
    constants = {"two": np.array(2, np.float32), "none": np.zeros((0, 3), np.float32)}
    outputs = [info("y", np.float32, []), info("z", np.float32, [2, 3])]
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    found = graphdnn.onnx.load(model(nodes, [info("x", np.float32, [2, 3])], outputs, constants)).run({"x": x})
    assert found["y"].shape == ()
    np.testing.assert_allclose(found["y"], 2 * x.sum(), rtol=1e-5)
    np.testing.assert_array_equal(found["z"], x)
