"""Errors of the graph builder: which rule, and where the user wrote it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from builder_fixtures import conv_bias_relu, graph, values

from graphdnn import BadParam, Graph, GraphdnnError, NotInitialized, graph_to_json, plan_to_json, rank
from graphdnn.errors import Rejection


def _refused(call: Callable[[], Any], rule: str) -> Rejection:
    with pytest.raises(GraphdnnError) as caught:
        call()
    (found,) = [r for r in caught.value.rejections if r.rule == rule]
    assert found.reason
    assert found.fix
    return found


def test_errors_name_the_line_at_the_call() -> None:
    g = graph()
    x = g.tensor([2, 8, 6, 6])
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    found = _refused(lambda: g.conv_fprop(x, g.tensor([4, 3, 3, 3]), name="c1"), "conv.groups.divide_channels")
    assert f"'c1' (test_builder_errors.py:{line})" in found.where
    x_after = g.conv_fprop(x, g.tensor([4, 8, 3, 3]))
    assert x_after.get_dim() == [2, 4, 4, 4], "the graph stays usable"


def test_errors_in_settings_name_the_line_too() -> None:
    g = graph()
    x, w = g.tensor([2, 8, 6, 6]), g.tensor([4, 8, 3, 3])
    found = _refused(lambda: g.conv_fprop(x, w, stride=[0, 1]), "convolution.filter_strides.minimum")
    assert re.search(r"\(test_builder_errors\.py:\d+\)", found.where)


def test_an_axis_without_elements_is_refused_by_its_tensor() -> None:
    """What follows from its extents does not come first."""
    g = graph()
    g.matmul(g.tensor([0, 2, 3]), g.tensor([2, 3, 4])).set_output(True)
    assert _refused(g.build, "tensor.dims.positive").value == (0, 2, 3)


def test_bindings_that_are_refused_name_the_line_of_their_tensor() -> None:
    g = graph()
    x, line = g.tensor([2, 3]), inspect.currentframe().f_lineno  # type: ignore[union-attr]
    y = g.relu(x).set_output(True)
    g.build()
    out = np.empty((2, 3), np.float32)
    for call in (lambda: g.execute({y: out}), lambda: g.run({})):
        assert _refused(call, "binding.missing").attribute == f"uid 1 (test_builder_errors.py:{line})"
    found = _refused(lambda: g.execute({x: np.empty((3, 2), np.float32), y: out}), "binding.shape")
    assert found.attribute == f"uid 1 (test_builder_errors.py:{line})"
    assert _refused(lambda: g.run([out]), "builder.binding.pack").value == "list"  # type: ignore[arg-type]


def test_without_a_file_there_is_no_line() -> None:
    with pytest.raises(BadParam) as caught:
        exec("g.relu(None)", {"g": graph()})  # compiled from a string, as at a prompt
    line = caught.value.rejections[0].where
    assert "()" not in line


def test_a_refused_call_leaves_no_trace() -> None:
    g = graph()
    x, b = g.tensor([2, 5, 3, 3]), g.tensor([4, 1, 1])
    _refused(lambda: g.bias(x, b), "pointwise.broadcast")
    assert b.get_dim() == [4, 1, 1]
    y = g.bias(g.tensor([4, 3, 3]), b).set_output()
    _refused(lambda: g.tensor_like("text"), "builder.tensor_like")
    assert len(g.build_operation_graph().operations) == 1
    assert y.get_dim() == [4, 3, 3]
    assert y.get_uid() == 4, "uids count what exists"


def test_operands_are_tensors() -> None:
    g = graph()
    x = g.tensor([2, 3])
    for call in (
        lambda: g.relu(None), lambda: g.add(x, np.zeros((2, 3))), lambda: g.transpose(None, [1, 0]),
        lambda: g.conv_fprop(x, None), lambda: g.concatenate([x, 1], axis=0), lambda: g.slice(1, []),
        lambda: g.concatenate(5, axis=0),
    ):  # fmt: skip
        _refused(call, "builder.operand.type")


@pytest.mark.parametrize(
    ("operand", "fix"),
    [(2.0, "tensor_scalar(2.0)"), (np.zeros((2, 3)), "tensor_like(array)"), (None, "tensor([extents])")],
)
def test_what_is_no_tensor_is_answered_with_the_call_that_makes_one(operand: Any, fix: str) -> None:
    g = graph()
    with pytest.raises(BadParam) as caught:
        g.mul(g.tensor([2, 3]), operand)
    assert caught.value.rejections[0].fix.endswith(fix)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("conv2d", "conv_fprop"), ("batch_norm", "batchnorm"), ("softmax", "reduction, sub, exp"), ("matmull", "matmul")],
)
def test_methods_of_elsewhere(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean {meant}"):
        getattr(graph(), name)
    assert not hasattr(graph(), "__array_interface__")


def test_run_writes_into_outputs_that_are_given() -> None:
    g = graph()
    x = g.tensor([2, 3], name="x")
    y, z = g.relu(x).set_output(), g.neg(x).set_output()
    data, out = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    found = g.run({"x": data, y: out})
    assert found[y] is out
    assert out.all()
    assert (found[z] == -1).all()


def test_a_builder_in_place_of_what_it_makes() -> None:
    g = graph()
    g.relu(g.tensor([2, 3])).set_output()
    for call, words in (
        (rank, r"graph\.build_operation_graph\(\)"), (graph_to_json, r"graph\.build_operation_graph\(\)"),
        (plan_to_json, r"graph\.plan"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match=words):
            call(g)


def test_numbers_for_each_axis() -> None:
    g = graph()
    x, w = g.tensor([1, 2, 8, 8]), g.tensor([4, 2, 3, 3])
    assert g.conv_fprop(x, w, padding=1, stride=2).get_dim() == [1, 4, 4, 4], "one number stands for all axes"
    assert g.resample(x, "MAXPOOL", window=2, pre_padding=0)[0].get_dim() == [1, 2, 4, 4]
    _refused(lambda: g.conv_fprop(x, w, padding=[1, 1, 1, 1]), "builder.per_axis")


@pytest.mark.parametrize(("call", "rule"), [
    (lambda g, c: g.layernorm("TRAINING", g.tensor([4, 8, 1]), c, c, g.tensor_scalar(1e-5)), "norm_fwd.rank"),
    (lambda g, c: g.resample(c, "MAXPOOL", [2, 2]), "resample_fwd.spatial_rank"),
    (lambda g, c: g.genstats(c), "genstats.channel_axis"),
])  # fmt: skip
def test_operands_of_too_few_axes_are_named_where_they_are_passed(call: Callable[..., Any], rule: str) -> None:
    g = graph()
    _refused(lambda: call(g, g.tensor([8])), rule)


def test_slices() -> None:
    g = graph()
    x = g.tensor([4, 6])
    for cuts in ([slice(None)], [], [0, slice(None)], 3, None):
        _refused(lambda cuts=cuts: g.slice(x, cuts), "builder.slices")
    _refused(lambda: g.slice(x, [slice(None, None, -1), slice(None)]), "slice.strides.positive")
    _refused(lambda: g.concatenate([x], axis=9), "concat.axis")
    _refused(lambda: g.transpose(x, [0, 0]), "transpose.permutation")


def test_arguments_that_nothing_reads() -> None:
    g = graph()
    x, c = g.tensor([2, 4, 4]), g.tensor([1, 4, 1])
    for call in (
        lambda: g.matmul(x, x, padding=1.0),
        lambda: g.concatenate([x, x], axis=0, in_place_index=0),
        lambda: g.batchnorm(x, c, c, epsilon=g.tensor_scalar(1e-5), peer_stats=[c]),
        lambda: g.tensor([2, 3], ragged_offset=c),
    ):
        _refused(call, "attr.not_supported")
    assert g.matmul(x, x, padding=0.0).get_dim() == [2, 4, 4]


@pytest.mark.parametrize("call", [
    lambda g: g.tensor([2.5, 3]), lambda g: g.tensor("23"), lambda g: g.tensor([2]).set_dim(5),
    lambda g: g.tensor([2], uid="a"), lambda g: g.tensor([2], stride=[1.0]),
    lambda g: g.conv_fprop(g.tensor([1, 1, 4, 4]), g.tensor([1, 1, 3, 3]), padding=1.5),
    lambda g: g.conv_fprop(g.tensor([1, 1, 4, 4]), g.tensor([1, 1, 3, 3]), padding="same"),
    lambda g: g.transpose(g.tensor([2, 3]), 5), lambda g: g.transpose(g.tensor([2, 3]), ["H", "W"]),
    lambda g: g.concatenate([g.tensor([2, 3])], axis="W"), lambda g: g.im2col(g.tensor([1, 1, 4, 4]), 3),
])  # fmt: skip
def test_integers_are_integers(call: Callable[[Graph], Any]) -> None:
    with pytest.raises(BadParam, match=r"attr\.type"):
        call(graph())


def test_origins_are_kept_in_operations() -> None:
    g = graph()
    conv_bias_relu(g)
    assert all(op.origin.startswith("builder_fixtures.py:") for op in g.build_operation_graph().operations)


def test_operands_that_do_not_fit() -> None:
    g = graph()
    _refused(lambda: g.add(g.tensor([2, 3]), g.tensor([2, 4])), "pointwise.broadcast")
    _refused(lambda: g.matmul(g.tensor([2, 3]), g.tensor([4, 5])), "matmul.inner")


def test_open_types() -> None:
    g = Graph()
    g.relu(g.tensor([2, 3])).set_output()
    _refused(g.validate, "builder.data_type.open")


@pytest.mark.parametrize(
    ("mode", "fix"), [("max", "ResampleMode.MAXPOOL"), ("pool", "ResampleMode has NEAREST, BILINEAR")]
)
def test_names_of_members_are_answered_with_members(mode: Any, fix: str) -> None:
    g = Graph(io_data_type="f32")
    with pytest.raises(BadParam, match="a member of ResampleMode is wanted") as caught:
        g.resample(g.tensor([2, 4, 8, 8]), mode, [2, 2])
    assert fix in caught.value.rejections[0].fix


def test_unknown_types() -> None:
    _refused(lambda: Graph(io_data_type="f33"), "attr.type")


def test_rank_of_a_shared_operand() -> None:
    g = graph()
    b = g.tensor([4, 1, 1])
    g.add(g.tensor([4, 3, 3]), b)
    _refused(lambda: g.add(g.tensor([2, 4, 3, 3]), b), "builder.rank")


def test_tensors_of_another_graph() -> None:
    g, other = graph(), graph()
    _refused(lambda: g.relu(other.tensor([2, 3])), "builder.tensor.foreign")


def test_duplicate_uids() -> None:
    g = graph()
    g.add(g.tensor([2, 3], uid=5), g.tensor([2, 3], uid=5)).set_output()
    _refused(g.validate, "builder.uid.duplicate")


def test_what_tensor_like_cannot_read() -> None:
    _refused(lambda: graph().tensor_like("text"), "builder.tensor_like")


def test_frozen_after_building() -> None:
    g = graph()
    x, *_ = conv_bias_relu(g)
    g.build()
    _refused(lambda: x.set_dim([1, 8, 6, 6]), "builder.frozen")
    _refused(lambda: g.tensor([2, 3]), "builder.frozen")


def test_execute_before_build() -> None:
    g = graph()
    conv_bias_relu(g)
    with pytest.raises(NotInitialized):
        g.execute({})
    _refused(g.check_support, "builder.not_built")


def test_unknown_keys_and_missing_arrays() -> None:
    g = graph()
    x, w, b, y = conv_bias_relu(g)
    g.build()
    _refused(lambda: g.execute({"z": np.zeros(1)}), "builder.binding.unknown")
    _refused(lambda: g.execute([np.zeros(1)]), "builder.binding.pack")  # type: ignore[arg-type]
    with pytest.raises(BadParam, match=r"binding\.missing"):
        g.execute({x: values(2, 8, 6, 6), w: values(4, 8, 3, 3), y: values(2, 4, 6, 6)})
    assert b.get_uid() == 3


def test_ambiguous_keys() -> None:
    g = graph()
    a, b = g.tensor([2, 3], name="a"), g.tensor([2, 3], name="a")
    y = g.sub(a, b).set_output()
    g.build()
    data, out = values(2, 3), np.empty((2, 3), np.float32)
    _refused(lambda: g.execute({"a": data, b: data, y: out}), "builder.binding.ambiguous")
    _refused(lambda: g.execute({a: data, 1: data, b: data, y: out}), "builder.binding.ambiguous")
    g.execute({np.int64(1): data, b: data, y: out})
    assert not out.any()
