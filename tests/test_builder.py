"""The graph builder: names, inference, origins, life cycle, execution."""

from __future__ import annotations

import inspect
import re
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphdnn import (
    BadParam,
    ConvolutionMode,
    DataType,
    Graph,
    GraphdnnError,
    HeurMode,
    NormPhase,
    NotInitialized,
    NotSupported,
    NumericalNote,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
    rank,
)
from graphdnn.builder import Tensor
from graphdnn.builder import graph as graph_module
from graphdnn.builder.methods import POINTWISE_METHODS
from graphdnn.errors import Rejection
from graphdnn.pointwise import POINTWISE
from graphdnn.tensors import channels_last_strides, packed_strides

RNG = np.random.default_rng(0)


def graph(**fields: Any) -> Graph:
    return Graph(**{"name": "test", "io_data_type": "f32", **fields})


def values(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (RNG.standard_normal(shape) * 4).astype(dtype)


def conv_bias_relu(g: Graph) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, w, b = g.tensor([2, 8, 6, 6]), g.tensor([4, 8, 3, 3]), g.tensor([1, 4, 1, 1])
    return x, w, b, g.relu(g.bias(g.conv_fprop(x, w, padding=[1, 1]), b)).set_output()


def test_conv_bias_relu() -> None:
    g = graph()
    x, w, b, y = conv_bias_relu(g)
    plan = g.build()
    assert plan.fused_operations == (("conv_fprop", "add", "relu_fwd"),)
    assert y.get_dim() == [2, 4, 6, 6]
    data = {x: values(2, 8, 6, 6), w: values(4, 8, 3, 3), b: values(1, 4, 1, 1)}
    (out,) = g.run(data).values()
    expected = np.zeros((2, 4, 6, 6))
    padded = np.pad(data[x].astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    for r in range(3):
        for s in range(3):
            expected += np.einsum(
                "kc,ncpq->nkpq", data[w][:, :, r, s].astype(float), padded[:, :, r : r + 6, s : s + 6]
            )
    np.testing.assert_allclose(out, np.maximum(expected + data[b], 0), rtol=1e-4, atol=1e-3)


# The names of cuDNN's frontend.


FRONTEND = {
    "conv_fprop": "image weight padding stride dilation convolution_mode compute_data_type name",
    "conv_dgrad": "loss filter padding stride dilation convolution_mode compute_data_type name",
    "conv_wgrad": "image loss padding stride dilation convolution_mode compute_data_type name",
    "matmul": "A B compute_data_type padding name",
    "reduction": "input mode compute_data_type name",
    "genstats": "input compute_data_type name",
    "reshape": "input name reshape_mode",
    "transpose": "input permutation compute_data_type name",
    "slice": "input slices compute_data_type name",
    "concatenate": "inputs axis in_place_index name",
    "batchnorm": "input scale bias in_running_mean in_running_var epsilon momentum peer_stats compute_data_type name",
    "batchnorm_inference": "input mean inv_variance scale bias compute_data_type name",
    "batchnorm_backward": "grad input scale mean inv_variance peer_stats compute_data_type name",
    "layernorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "adalayernorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "instancenorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "rmsnorm": "norm_forward_phase input scale bias epsilon compute_data_type name",
    "rmsnorm_backward": "grad input scale inv_variance has_dbias compute_data_type name",
    "relu": "input negative_slope lower_clip upper_clip compute_data_type name",
    "leaky_relu": "input negative_slope compute_data_type name",
    "swish": "input swish_beta compute_data_type name",
    "gen_index": "input axis compute_data_type name",
    "binary_select": "input0 input1 mask compute_data_type name",
    "relu_backward": "loss input negative_slope lower_clip upper_clip compute_data_type name",
    "swish_backward": "loss input compute_data_type swish_beta name",
    "bias": "input bias compute_data_type name",
    "scale": "input scale compute_data_type name",
    "cmp_gt": "input comparison compute_data_type name",
    "add": "a b compute_data_type name",
    "max": "input0 input1 compute_data_type name",
    "tensor": "dim stride data_type is_virtual is_pass_by_value ragged_offset reordering_type name uid",
}


@pytest.mark.parametrize("method", FRONTEND)
def test_keywords_of_the_frontend(method: str) -> None:
    names = [n for n in inspect.signature(getattr(Graph, method)).parameters if n != "self"]
    wanted = FRONTEND[method].split()
    assert names[: len(wanted)] == wanted


def test_type_checkers_see_every_elementwise_method() -> None:
    declared = set(re.findall(r"^        (\w+): Elementwise$", Path(graph_module.__file__).read_text(), re.MULTILINE))
    assert declared == set(POINTWISE_METHODS)


def test_every_mode_has_a_method() -> None:
    assert {row.mode for row in POINTWISE_METHODS.values()} == set(POINTWISE)


@pytest.mark.parametrize("name", POINTWISE_METHODS)
def test_every_elementwise_method_runs(name: str) -> None:
    row = POINTWISE_METHODS[name]
    g = graph()
    operands = {a: g.tensor([2, 3], name=a) for a in row.arguments}
    parameters = dict.fromkeys(row.required, 1)
    y = getattr(g, name)(**operands, **parameters).set_output()
    data = {t: np.abs(values(2, 3)) + 1 for t in operands.values()}
    (out,) = g.run(data).values()
    keywords = {f: 1 for p, f in row.parameters.items() if p in row.required}
    (node,) = g._nodes
    wanted = POINTWISE[row.mode].numpy(
        *(data[operands[a]] for a in _in_port_order(row)), **{**node.fields["spec"].parameters(), **keywords}
    )
    np.testing.assert_array_equal(out, np.broadcast_to(wanted, (2, 3)).astype(np.float32))
    assert y.get_dim() == [2, 3]
    assert getattr(Graph, name).__doc__


def _in_port_order(row: Any) -> list[str]:
    argument = {port: a for a, port in row.arguments.items()}
    return [argument[port] for port in POINTWISE[row.mode].operands]


# Inference.


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


# Every other method once, through execution.


def norm_operands(g: Graph, channels: bool = True) -> tuple[Tensor, ...]:
    extents = [1, 4, 1, 1] if channels else [1, 1, 1, 5]
    epsilon = g.tensor([1, 1, 1, 1], is_pass_by_value=True, name="epsilon")
    return g.tensor([2, 4, 5, 5], name="x"), g.tensor(extents, name="scale"), g.tensor(extents, name="bias"), epsilon


METHODS: dict[str, Callable[[Graph], Any]] = {
    "wgrad": lambda g: g.conv_wgrad(g.tensor([2, 8, 6, 6]), g.tensor([2, 4, 4, 4])).set_dim([4, 8, 3, 3]),
    "flipped": lambda g: g.conv_fprop(
        g.tensor([2, 8, 6, 6]), g.tensor([4, 8, 3, 3]), pre_padding=[1, 0], post_padding=[0, 2],
        convolution_mode=ConvolutionMode.CONVOLUTION,
    ),
    "matmul": lambda g: g.matmul(g.tensor([2, 3, 4]), g.tensor([1, 4, 5])),
    "reduction": lambda g: g.reduction(g.tensor([2, 3, 4]), ReductionOperator.MAX).set_dim([2, 1, 1]),
    "reshape": lambda g: g.reshape(g.tensor([2, 6]), reshape_mode=ReshapeMode.LOGICAL).set_dim([3, 4]),
    "transpose": lambda g: g.transpose(g.tensor([2, 3, 4]), [2, 0, 1]),
    "slice": lambda g: g.slice(g.tensor([6, 8]), [slice(1, 5, 2), slice(None)]),
    "concatenate": lambda g: g.concatenate([g.tensor([2, 3]), g.tensor([2, 4])], axis=1),
    "batchnorm": lambda g: g.batchnorm(
        *(o := norm_operands(g))[:3], g.tensor([1, 4, 1, 1]), g.tensor([1, 4, 1, 1]), o[3],
        g.tensor([1, 1, 1, 1], is_pass_by_value=True),
    ),
    "batchnorm_inference": lambda g: g.batchnorm_inference(
        g.tensor([2, 4, 5, 5]), *(g.tensor([1, 4, 1, 1]) for _ in range(4))
    ),
    "batchnorm_backward": lambda g: g.batchnorm_backward(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), *(g.tensor([1, 4, 1, 1]) for _ in range(3))
    ),
    "layernorm": lambda g: g.layernorm(NormPhase.TRAINING, *norm_operands(g, False)),
    "layernorm_inference": lambda g: g.layernorm(NormPhase.INFERENCE, *norm_operands(g, False)),
    "layernorm_backward": lambda g: g.layernorm_backward(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), g.tensor([1, 1, 1, 5]), g.tensor([2, 4, 5, 1]), g.tensor([2, 4, 5, 1])
    ),
    "instancenorm": lambda g: g.instancenorm(NormPhase.TRAINING, *norm_operands(g)),
    "rmsnorm": lambda g: g.rmsnorm(NormPhase.TRAINING, *(o := norm_operands(g, False))[:2], None, o[3]),
    "rmsnorm_backward": lambda g: g.rmsnorm_backward(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), g.tensor([1, 1, 1, 5]), g.tensor([2, 4, 5, 1]), has_dbias=True
    ),
    "adalayernorm": lambda g: g.adalayernorm(
        NormPhase.TRAINING, g.tensor([2, 4, 6]), g.tensor([2, 1, 6]), g.tensor([2, 1, 6]),
        g.tensor([1, 1, 1], is_pass_by_value=True),
    ),
    "resample": lambda g: g.resample(g.tensor([2, 4, 6, 6]), ResampleMode.MAXPOOL, [2, 2], generate_index=True),
    "resample_backward": lambda g: g.resample_backward(
        g.tensor([2, 4, 3, 3]), ResampleMode.AVGPOOL_INCLUDE_PADDING, [2, 2]
    ).set_dim([2, 4, 6, 6]),
    "bn_finalize": lambda g: g.bn_finalize(
        *(g.tensor([1, 4, 1, 1]) for _ in range(4)), *(g.tensor([1, 1, 1, 1], is_pass_by_value=True) for _ in range(3))
    ),
    "dbn_weight": lambda g: g.dbn_weight(
        g.tensor([2, 4, 5, 5]), g.tensor([2, 4, 5, 5]), *(g.tensor([1, 4, 1, 1]) for _ in range(3))
    ),
    "rng": lambda g: g.rng(
        RngDistribution.UNIFORM, 7, g.tensor([1, 1], data_type="i64", is_pass_by_value=True), minimum=0.0, maximum=1.0
    ).set_dim([4, 5]),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_method_builds_and_runs(name: str) -> None:
    g = graph()
    made = METHODS[name](g)
    outputs = [t for t in (made if isinstance(made, list) else [made]) if t is not None]
    for tensor in outputs:
        tensor.set_output()
    op_graph = g.build_operation_graph()
    inputs = {s.uid: 1 if s.is_by_value else np.abs(values(*s.dims)) + 0.5 for s in op_graph.inputs}
    results = g.run(inputs)
    assert set(results) == set(outputs)
    assert all(np.isfinite(r.astype(float)).all() for r in results.values())
    assert len(g.plan.fused_operations) == 1


# Errors: which rule, and where the user wrote it.


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
    assert f"'c1' (test_builder.py:{line})" in found.where
    x_after = g.conv_fprop(x, g.tensor([4, 8, 3, 3]))
    assert x_after.get_dim() == [2, 4, 4, 4], "the graph stays usable"


def test_errors_in_settings_name_the_line_too() -> None:
    g = graph()
    x, w = g.tensor([2, 8, 6, 6]), g.tensor([4, 8, 3, 3])
    found = _refused(lambda: g.conv_fprop(x, w, stride=[0, 1]), "convolution.filter_strides.minimum")
    assert re.search(r"\(test_builder\.py:\d+\)", found.where)


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
    ):  # fmt: skip
        _refused(call, "builder.operand.type")


def test_slices() -> None:
    g = graph()
    x = g.tensor([4, 6])
    for cuts in ([slice(None)], [], [0, slice(None)]):
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
    lambda g: g.conv_fprop(g.tensor([1, 1, 4, 4]), g.tensor([1, 1, 3, 3]), padding=1),
])  # fmt: skip
def test_integers_are_integers(call: Callable[[Graph], Any]) -> None:
    with pytest.raises(BadParam, match=r"attr\.type"):
        call(graph())


def test_origins_are_kept_in_operations() -> None:
    g = graph()
    conv_bias_relu(g)
    assert all(op.origin.startswith("test_builder.py:") for op in g.build_operation_graph().operations)


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


# Planning.


def test_life_cycle_step_by_step() -> None:
    g = graph()
    conv_bias_relu(g)
    g.validate()
    g.validate()
    assert g.get_execution_plan_count() == 0
    g.create_execution_plans([HeurMode.A])
    assert g.get_execution_plan_count() == 2
    g.create_execution_plans([HeurMode.FALLBACK])
    names = [g.get_plan_name_at_index(i) for i in range(3)]
    assert sorted(names) == ["numpy", "numpy", "numpy_blocked"]
    assert names[2] == "numpy", "what FALLBACK appends"
    g.check_support()
    g.build_plan_at_index(2)
    assert g.plan.name == "numpy"
    assert g.get_workspace_size() == 0
    assert g.get_workspace_size_plan_at_index(names.index("numpy_blocked")) > 0
    assert g.key() == g.build_operation_graph().key
    assert g.query_tensor_attributes_of_uid(1).get_dim() == [2, 8, 6, 6]
    assert "numpy_blocked" in g.explain()
    assert list(g.get_numeric_notes()) == [NumericalNote.STRICT_NAN_PROP]
    assert g.get_behavior_notes() == []


def test_filters() -> None:
    g = graph()
    conv_bias_relu(g)
    g.create_execution_plans([HeurMode.A])
    g.deselect_engines(["blocked"])
    assert g.build().name == "numpy"
    h = graph()
    conv_bias_relu(h)
    h.deselect_workspace_greater_than(0)
    assert h.build().name == "numpy"
    h2 = graph()
    conv_bias_relu(h2)
    h2.deselect_numeric_notes([NumericalNote.STRICT_NAN_PROP])
    with pytest.raises(NotSupported, match=r"filter\.numerical_note"):
        h2.build()


def test_engines_that_round_are_asked_for() -> None:
    g = Graph(io_data_type="float32", compute_data_type="float32", device="h200")
    x, w = g.tensor([8, 64, 56, 56], name="x"), g.tensor([64, 64, 3, 3], name="w")
    g.conv_fprop(x, w, padding=[1, 1]).set_output(True)
    g.create_execution_plans([HeurMode.A])

    def names() -> list[str]:
        return [g.get_plan_name_at_index(i) for i in range(g.get_execution_plan_count())]

    assert "cuda_hopper_gemm_tf32" not in names()
    g.allow_numeric_notes([NumericalNote.DOWN_CONVERT_INPUTS])
    assert "cuda_hopper_gemm_tf32" in names()


def test_everything_deselected() -> None:
    g = graph()
    conv_bias_relu(g)
    g.deselect_engines(["numpy"])
    with pytest.raises(NotSupported) as caught:
        g.build()
    barred = {str(r.value) for r in caught.value.rejections if r.rule == "builder.deselected"}
    assert "numpy" in barred
    assert any(name.startswith("numpy_blocked") for name in barred)


def test_indices_of_configurations() -> None:
    g = graph()
    conv_bias_relu(g)
    g.create_execution_plans()
    for call in (g.get_plan_name_at_index, g.get_workspace_size_plan_at_index, g.build_plan_at_index):
        for index in (-1, 2):
            _refused(lambda call=call, index=index: call(index), "builder.plan.index")


def test_keys_may_be_tensors_uids_names_and_none() -> None:
    g = graph()
    x, b = g.tensor([2, 3], name="x"), g.tensor([2, 3])
    y = g.add(x, b).set_output()
    g.build()
    a, c, out = values(2, 3), values(2, 3), np.empty((2, 3), np.float32)
    for pack in (
        {x: a, b: c, y: out},
        {"x": a, b.get_uid(): c, y: out},
        {1: a, 2: c, 3: out},
        {x: a, b: c, y: out, None: 1},
    ):
        out[...] = np.nan
        g.execute(pack)
        np.testing.assert_array_equal(out, a + c)


def test_members_by_name() -> None:
    """A setting is a member of its enum or the member's name, as an element type is."""
    graphs = []
    for is_named in (True, False):

        def member(value: Any, is_named: bool = is_named) -> Any:
            return value.name.lower() if is_named else value

        g = Graph(io_data_type="float32")
        x, one = g.tensor([2, 4, 6, 6]), g.tensor([1, 4, 1, 1])
        y = g.conv_fprop(x, g.tensor([4, 4, 3, 3]), convolution_mode=member(ConvolutionMode.CONVOLUTION))
        y, mean, _ = g.instancenorm(member(NormPhase.TRAINING), y, one, one, g.tensor_scalar(1e-5))
        assert mean is not None
        pooled, _ = g.resample(
            y, member(ResampleMode.AVGPOOL_INCLUDE_PADDING), [2, 2], padding_mode=member(PaddingMode.ZERO_PAD)
        )
        assert pooled is not None
        sums = g.reduction(g.pointwise(member(PointwiseMode.RELU_FWD), x=pooled), member(ReductionOperator.AVG))
        sums.set_dim([1, 4, 1, 1]).set_output(True)
        graphs.append(g.build_operation_graph())
        assert rank(graphs[-1], mode=member(HeurMode.B)).mode is HeurMode.B
    assert graphs[0].operations == graphs[1].operations


@pytest.mark.parametrize("mode", ["relu", "", 3, None])
def test_modes_that_are_none(mode: Any) -> None:
    g = Graph(io_data_type="float32")
    with pytest.raises(BadParam) as error:
        g.pointwise(mode, x=g.tensor([2, 4]))
    assert error.value.rejections[0].rule == "attr.type"


@pytest.mark.parametrize("mode", ["C", 1, None, HeurMode.COUNT])
def test_heuristic_modes_that_are_none(mode: Any) -> None:
    g = Graph(io_data_type="float32")
    g.relu(g.tensor([2, 4])).set_output(True)
    for ask in (
        lambda: g.build([mode]),
        lambda: g.autotune(mode=mode),
        lambda: rank(g.build_operation_graph(), mode=mode),
    ):
        with pytest.raises(BadParam) as error:
            ask()
        assert error.value.rejections[0].rule == "heuristics.mode"


@pytest.mark.long
def test_execute_adds_little() -> None:
    g = graph()
    x, b = g.tensor([2, 3]), g.tensor([2, 3])
    y = g.add(x, b).set_output()
    plan = g.build()
    plan._launch = lambda arrays, workspace: None
    pack = {x.get_uid(): values(2, 3), b.get_uid(): values(2, 3), y.get_uid(): values(2, 3)}
    direct = min(timeit.repeat(lambda: plan.execute(pack), number=20000, repeat=5)) / 20000
    through = min(timeit.repeat(lambda: g.execute(pack), number=20000, repeat=5)) / 20000
    print(f"Graph.execute adds {(through - direct) * 1e6:.2f} us")
    assert through - direct < 1.5e-6


def test_packed_is_the_default() -> None:
    g = graph()
    x = g.tensor([2, 3, 4])
    g.relu(x).set_output()
    g.validate()
    assert tuple(x.get_stride()) == packed_strides((2, 3, 4))
