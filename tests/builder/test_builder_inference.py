"""What the graph builder infers: layouts, types, uids, extents of scalars and operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from builder_fixtures import graph, values
from test_builder import norm_operands
from test_builder_errors import _refused

from graphdnn import DataType, Graph, NormPhase, ReductionOperator
from graphdnn.builder import Tensor
from graphdnn.tensors import channels_last_strides


def test_layout_follows_the_first_operand() -> None:
    g = graph()
    x = g.tensor([2, 8, 6, 6], stride=channels_last_strides((2, 8, 6, 6)))
    y = g.conv_fprop(x, g.tensor([4, 8, 3, 3])).set_output()
    g.validate()
    assert tuple(y.get_stride()) == channels_last_strides((2, 4, 4, 4))
    assert tuple(g.relu(g.tensor([2, 3])).get_dim()) == (2, 3)


@pytest.mark.parametrize(
    ("operand", "virtual", "output"),
    [
        ("f16", "FLOAT", "HALF"),
        ("bf16", "FLOAT", "BFLOAT16"),
        ("f64", "DOUBLE", "DOUBLE"),
        ("i8", "INT32", "INT32"),
        ("i64", "INT64", "INT64"),
    ],
)
def test_types_are_inferred(operand: str, virtual: str, output: str) -> None:
    g = Graph()
    middle = g.conv_fprop(g.tensor([1, 4, 5, 5], data_type=operand), g.tensor([4, 4, 3, 3], data_type=operand))
    y = g.relu(middle).set_output()
    g.validate()
    assert middle.get_data_type() is DataType[virtual]
    assert y.get_data_type() is DataType[output]


def test_graph_types_win() -> None:
    g = Graph(io_data_type="f16", intermediate_data_type="bf16", compute_data_type="f64")
    middle = g.conv_fprop(g.tensor([1, 4, 5, 5]), g.tensor([4, 4, 3, 3]))
    y = g.relu(middle).set_output()
    op_graph = g.build_operation_graph()
    assert middle.get_data_type() is DataType.BFLOAT16
    assert y.get_data_type() is DataType.HALF
    assert {op.compute_type for op in op_graph.operations} == {DataType.DOUBLE}


def test_statistics_keep_their_precision() -> None:
    g = Graph()
    total, squares = g.genstats(g.tensor([2, 4, 5, 5], data_type="f16"))
    total.set_output()
    squares.set_output()
    g.validate()
    assert total.get_data_type() is squares.get_data_type() is DataType.FLOAT
    assert total.get_dim() == [1, 4, 1, 1]


def test_float_operands_are_not_open_ones() -> None:
    """FLOAT is the type of value 0."""
    g = Graph()
    x, w = g.tensor([2, 4, 8, 8], data_type="int8"), g.tensor([4, 4, 3, 3], data_type="float32")
    y = g.conv_fprop(x, w).set_output(True)
    g.validate()
    assert y.get_data_type() is DataType.FLOAT
    other = Graph(io_data_type="int8")
    x, b = other.tensor([2, 4, 8, 8]), other.tensor([1, 4, 1, 1], data_type="float32")
    other.add(x, b).set_output(True)
    (operation,) = other.build_operation_graph().operations
    assert operation.compute_type is DataType.FLOAT


def test_uids_count_up_around_the_given_ones() -> None:
    g = graph()
    first, second = g.tensor([2, 3], uid=2), g.tensor([2, 3])
    y = g.add(first, second).set_output()
    assert y.get_uid() == 0
    g.build_operation_graph()
    assert [t.get_uid() for t in (first, second, y)] == [2, 1, 3]


def test_operands_of_lower_rank_are_aligned_to_the_right() -> None:
    g = graph()
    x, b = g.tensor([2, 4, 3, 3]), g.tensor([4, 1, 1])
    y = g.bias(x, b).set_output()
    out = g.run({x: values(2, 4, 3, 3), b: values(1, 4, 1, 1)})
    assert out[y].shape == (2, 4, 3, 3)
    assert b.get_dim() == [1, 4, 1, 1]


def test_scalars_adapt_and_are_constants() -> None:
    g = graph()
    x = g.tensor([2, 3])
    y = g.mul(x, g.tensor_scalar(0.5)).set_output()
    assert (g.run({x: np.ones((2, 3), np.float32)})[y] == 0.5).all()


@pytest.mark.parametrize("phase", [NormPhase.TRAINING, NormPhase.INFERENCE])
def test_a_scalar_may_be_an_epsilon(phase: NormPhase) -> None:
    g = graph()
    x, scale, bias, _ = norm_operands(g, False)
    y, *_ = g.layernorm(phase, x, scale, bias, g.tensor_scalar(1e-5))
    assert y is not None
    y.set_output()
    data = values(2, 4, 5, 5)
    out = g.run({x: data, scale: np.ones((1, 1, 1, 5), np.float32), bias: np.zeros((1, 1, 1, 5), np.float32)})[y]
    wide = data.astype(float)
    wanted = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    [
        lambda g, x: g.genstats(x)[0],
        lambda g, x: g.reduction(x, ReductionOperator.AVG).set_dim([1, 4, 1, 1]),
        lambda g, x: g.batchnorm(x, *(g.tensor([1, 4, 1, 1], data_type="f32") for _ in range(2)),
                                 epsilon=g.tensor_scalar(1e-5))[0],
    ],
    ids=["genstats", "average", "batchnorm"],
)  # fmt: skip
def test_fractions_of_integers_are_floating(method: Callable[[Graph, Tensor], Tensor]) -> None:
    g = Graph()
    y = method(g, g.tensor([2, 4, 5, 5], data_type="i8")).set_output()
    (op,) = g.build_operation_graph().operations
    assert op.compute_type is y.get_data_type() is DataType.FLOAT


def test_empty_lists_are_not_set() -> None:
    g = graph()
    y = g.conv_fprop(g.tensor([1, 2, 5, 5]), g.tensor([3, 2, 3, 3]), padding=[], stride=[], dilation=[])
    assert y.get_dim() == [1, 3, 3, 3]


def test_tensor_like_keeps_constants_and_reads_array_interfaces() -> None:
    g = graph()
    assert g.tensor_like(g.tensor_scalar(0.5)).get_has_compile_time_constant()

    class Holder:
        __array_interface__ = np.zeros((2, 3), np.int16).__array_interface__

    assert g.tensor_like(Holder()).get_data_type() is DataType.INT16


def test_vectors() -> None:
    tensor = graph().tensor([2, 2, 5, 5]).set_vector_count_and_dimension(4, 1)
    assert (tensor.get_vector_count(), tensor.get_vector_dimension()) == (4, 1)


def test_tensor_like() -> None:
    g = graph()
    array = np.zeros((2, 6, 6, 8), np.float16).transpose(0, 3, 1, 2)
    tensor = g.tensor_like(array)
    assert tensor.get_dim() == [2, 8, 6, 6]
    assert tuple(tensor.get_stride()) == channels_last_strides((2, 8, 6, 6))
    assert g.tensor_like(tensor).get_data_type() is DataType.HALF


def test_explicit_groups() -> None:
    g = graph()
    x, w = g.tensor([2, 3, 4, 6, 6]), g.tensor([3, 5, 4, 3, 3])
    y = g.conv_fprop(x, w, padding=[1, 1]).set_output()
    assert y.get_dim() == [2, 3, 5, 6, 6]


def test_gradients_need_extents() -> None:
    g = graph()
    dy, w = g.tensor([2, 4, 4, 4]), g.tensor([4, 8, 3, 3])
    dx = g.conv_dgrad(dy, w).set_output()
    _refused(g.validate, "builder.extents.open")
    dx.set_dim([2, 8, 6, 6])
    assert g.build().fused_operations == (("conv_dgrad",),)
