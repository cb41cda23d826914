"""Operators with attributes drawn from a seed, beside onnxruntime, which shares no code with the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx_models import info, model, onnxruntime_results

pytest.importorskip("onnx.reference", reason="the package onnx is not installed")
import onnx as package
import onnx.shape_inference
from onnx import helper

import graphdnn.onnx

OPSET = 19

F32, F64, I8, U8, I32, I64 = np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64
Rng = np.random.Generator
# A node and its operands by name. Operands beyond the first are constants where the case says so.
Case = tuple[Any, dict[str, np.ndarray], tuple[str, ...]]


def _some(rng: Rng, *values: Any) -> Any:
    return values[rng.integers(len(values))]


def _normal(rng: Rng, *shape: int, dtype: Any = F32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def _windows(rng: Rng, axes: int, *, dilated: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = {"strides": [int(i) for i in rng.integers(1, 4, axes)]}
    if dilated:
        found["dilations"] = [int(i) for i in rng.integers(1, 3, axes)]
    if rng.random() < 0.3:
        found["auto_pad"] = _some(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
        found["strides"] = [min(i, 2) for i in found["strides"]]  # onnxruntime refuses windows with gaps between them
        if dilated and found["auto_pad"] != "VALID":
            found["dilations"] = [1] * axes  # onnxruntime's SAME counts windows without gaps
    else:
        found["pads"] = [int(i) for i in rng.integers(0, 2, 2 * axes)]
    return found


def _conv(rng: Rng) -> Case:
    axes, group = int(rng.integers(1, 4)), _some(rng, 1, 1, 2, 4)
    kernel = [int(i) for i in rng.integers(1, 4, axes)]
    x = _normal(rng, 2, 4, *rng.integers(7, 10, axes))
    w = _normal(rng, 8, 4 // group, *kernel)
    operands = {"x": x, "w": w} | ({"b": _normal(rng, 8)} if rng.random() < 0.5 else {})
    return helper.make_node("Conv", [*operands], ["y"], group=group, **_windows(rng, axes)), operands, ("w", "b")


def _conv_transpose(rng: Rng) -> Case:
    group = _some(rng, 1, 2)
    x, w = _normal(rng, 1, 4, 5, 6), _normal(rng, 4, 3, 3, 2)
    strides = [int(i) for i in rng.integers(1, 4, 2)]
    more = {"strides": strides, "pads": [int(i) for i in rng.integers(0, 2, 4)]}
    more["dilations"] = [int(i) for i in rng.integers(1, 3, 2)]
    if rng.random() < 0.5:
        more["output_padding"] = [s - 1 for s in strides]
    operands = {"x": x, "w": w} | ({"b": _normal(rng, 3 * group)} if rng.random() < 0.5 else {})
    return helper.make_node("ConvTranspose", [*operands], ["y"], group=group, **more), operands, ("w",)


def _pool(rng: Rng) -> Case:
    op_type, axes = _some(rng, "MaxPool", "AveragePool"), int(rng.integers(1, 4))
    kernel = [int(i) for i in rng.integers(2, 4, axes)]
    more = _windows(rng, axes, dilated=op_type == "MaxPool")
    more["ceil_mode"] = int(rng.integers(2)) if "auto_pad" not in more else 0
    if op_type == "AveragePool":
        more["count_include_pad"] = int(rng.integers(2))
    x = _normal(rng, 2, 3, *rng.integers(7, 10, axes))
    return helper.make_node(op_type, ["x"], ["y"], kernel_shape=kernel, **more), {"x": x}, ()


def _resize(rng: Rng) -> Case:
    mode = _some(rng, "nearest", "linear", "cubic")
    more: dict[str, Any] = {"mode": mode}
    more["coordinate_transformation_mode"] = _some(
        rng, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"
    )
    if mode == "nearest":
        more["nearest_mode"] = _some(rng, "round_prefer_floor", "floor", "ceil", "round_prefer_ceil")
    x = _normal(rng, 1, 2, int(rng.integers(4, 8)), int(rng.integers(4, 8)))
    sizes = np.array([1, 2, *rng.integers(3, 17, 2)], I64)
    return helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **more), {"x": x, "sizes": sizes}, ("sizes",)


def _quantized_conv(rng: Rng) -> Case:
    x = rng.integers(0, 256, (1, 4, 8, 8)).astype(U8)
    w = rng.integers(-128, 128, (6, 4, 3, 3)).astype(I8)
    per_filter = rng.random() < 0.5
    operands = {
        "x": x, "xs": np.array(0.02, F32), "xz": np.array(rng.integers(0, 256), U8), "w": w,
        "ws": (rng.random(6 if per_filter else ()).astype(F32) + 0.1) * F32(0.01),
        "wz": np.zeros(6 if per_filter else (), I8), "ys": np.array(0.05, F32), "yz": np.array(rng.integers(0, 256), U8),
    }  # fmt: skip
    if rng.random() < 0.5:
        operands["b"] = rng.integers(-1000, 1000, 6).astype(I32)
    node = helper.make_node("QLinearConv", [*operands], ["y"], **_windows(rng, 2))
    return node, operands, tuple(k for k in operands if k != "x")


def _recurrent(rng: Rng) -> Case:
    op_type, direction = _some(rng, "RNN", "GRU", "LSTM"), _some(rng, "forward", "reverse", "bidirectional")
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type], 1 + (direction == "bidirectional")
    steps, batch, inputs, hidden = 5, 3, 4, 6
    operands = {
        "x": _normal(rng, steps, batch, inputs),
        "w": _normal(rng, directions, gates * hidden, inputs),
        "r": _normal(rng, directions, gates * hidden, hidden),
        "b": _normal(rng, directions, 2 * gates * hidden),
        "lengths": rng.integers(1, steps + 1, batch).astype(I32),
        "h": _normal(rng, directions, batch, hidden),
    }
    more: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    if op_type == "GRU":
        more["linear_before_reset"] = int(rng.integers(2))
    if rng.random() < 0.3:
        more["clip"] = 0.5
    given = [*operands]
    if rng.random() < 0.5:
        given[4] = ""
        del operands["lengths"]
    outputs = ["y", "yh", "yc"][: 3 if op_type == "LSTM" else 2]
    return helper.make_node(op_type, given, outputs, **more), operands, ("w", "r", "b", "lengths")


def _reduction(rng: Rng) -> Case:
    op_type = _some(
        rng, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceLogSumExp"
    )
    x = _normal(rng, 3, 4, 5)
    axes = np.array(sorted(rng.choice(3, int(rng.integers(1, 4)), replace=False)), I64)
    node = helper.make_node(op_type, ["x", "axes"], ["y"], keepdims=int(rng.integers(2)))
    return node, {"x": x, "axes": axes - 3 * int(rng.integers(2))}, ("axes",)


def _integers(rng: Rng) -> Case:
    op_type, dtype = _some(rng, "Add", "Sub", "Mul", "Div", "Mod"), _some(rng, I8, U8, I32, I64)
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -(2**31)), min(limits.max, 2**31)
    if op_type in ("Add", "Sub", "Mul") and dtype in (I8, U8):
        dtype, low, high = I32, -(2**31), 2**31 - 1  # onnxruntime has no narrow integers here
    a, b = (rng.integers(low, high, shape, dtype=I64).astype(dtype) for shape in ((3, 4), (4,)))
    b = np.where(b == 0, 3, b).astype(dtype)
    if op_type in ("Div", "Mod") and dtype is I8:
        dtype, a, b = I32, a.astype(I32), b.astype(I32)
    if op_type in ("Div", "Mod") and dtype is U8:
        a, b = a.astype(I64), b.astype(I64)
    return helper.make_node(op_type, ["a", "b"], ["y"]), {"a": a, "b": b}, ()


def _positions(rng: Rng) -> Case:
    kind = _some(rng, "Gather", "GatherElements", "TopK", "ArgMax", "CumSum")
    x = _normal(rng, 4, 5, 3)
    axis = int(rng.integers(-3, 3))
    extent = x.shape[axis]
    if kind == "Gather":
        indices = rng.integers(-extent, extent, (2, 3)).astype(I64)
        return helper.make_node(kind, ["x", "i"], ["y"], axis=axis), {"x": x, "i": indices}, _some(rng, (), ("i",))
    if kind == "GatherElements":
        indices = rng.integers(-extent, extent, x.shape).astype(I64)
        return helper.make_node(kind, ["x", "i"], ["y"], axis=axis), {"x": x, "i": indices}, ()
    if kind == "TopK":
        more = {"axis": axis, "largest": int(rng.integers(2))}
        return helper.make_node(kind, ["x", "k"], ["y", "i"], **more), {"x": x, "k": np.array([2], I64)}, ("k",)
    if kind == "ArgMax":
        x = np.round(x)  # several are equal
        more = {"axis": axis, "keepdims": int(rng.integers(2)), "select_last_index": int(rng.integers(2))}
        return helper.make_node(kind, ["x"], ["y"], **more), {"x": x}, ()
    more = {"exclusive": int(rng.integers(2)), "reverse": int(rng.integers(2))}
    return helper.make_node(kind, ["x", "axis"], ["y"], **more), {"x": x, "axis": np.array(axis, I64)}, ("axis",)


def _movement(rng: Rng) -> Case:
    kind = _some(rng, "Slice", "Pad", "Transpose", "Tile", "Split", "DepthToSpace")
    x = _normal(rng, 2, 8, 6, 4)
    if kind == "Slice":
        starts, ends = rng.integers(-9, 9, 2).astype(I64), rng.integers(-9, 9, 2).astype(I64)
        steps = np.array([_some(rng, 1, 2, -1, -2) for _ in range(2)], I64)
        operands = {"x": x, "s": starts, "e": ends, "a": np.array([1, -1], I64), "t": steps}
        return helper.make_node(kind, [*operands], ["y"]), operands, ("s", "e", "a", "t")
    if kind == "Pad":
        mode = _some(rng, "constant", "reflect", "edge")
        operands = {"x": x, "p": np.array([0, 1, 2, 0, 1, 0, 1, 2], I64), "v": np.array(1.5, F32)}
        return helper.make_node(kind, [*operands], ["y"], mode=mode), operands, ("p", "v")
    if kind == "Transpose":
        return helper.make_node(kind, ["x"], ["y"], perm=[int(i) for i in rng.permutation(4)]), {"x": x}, ()
    if kind == "Tile":
        operands = {"x": x, "r": rng.integers(1, 4, 4).astype(I64)}
        return helper.make_node(kind, [*operands], ["y"]), operands, ("r",)
    if kind == "Split":
        operands = {"x": x, "s": np.array([3, 1, 4], I64)}
        return helper.make_node(kind, [*operands], ["y", "z", "u"], axis=1), operands, ("s",)
    return helper.make_node(kind, ["x"], ["y"], blocksize=2, mode=_some(rng, "DCR", "CRD")), {"x": x}, ()


def _normalization(rng: Rng) -> Case:
    kind = _some(rng, "LayerNormalization", "InstanceNormalization", "LRN", "Softmax", "LogSoftmax", "LpNormalization")
    x = _normal(rng, 2, 6, 4, 3) * 3
    if kind == "LayerNormalization":
        axis = int(rng.integers(1, 4))
        operands = {"x": x, "s": _normal(rng, *x.shape[axis:]), "b": _normal(rng, *x.shape[axis:])}
        return helper.make_node(kind, [*operands], ["y"], axis=axis), operands, ("s", "b")
    if kind == "InstanceNormalization":
        operands = {"x": x, "s": _normal(rng, 6), "b": _normal(rng, 6)}
        return helper.make_node(kind, [*operands], ["y"]), operands, ("s", "b")
    if kind == "LRN":
        return helper.make_node(kind, ["x"], ["y"], size=int(_some(rng, 3, 5)), alpha=0.1, bias=2.0), {"x": x}, ()
    more = {"axis": int(rng.integers(-4, 4))} | ({"p": int(rng.integers(1, 3))} if kind.startswith("Lp") else {})
    return helper.make_node(kind, ["x"], ["y"], **more), {"x": x}, ()


DRAWN: dict[str, Callable[[Rng], Case]] = {
    "conv": _conv, "conv_transpose": _conv_transpose, "pool": _pool, "resize": _resize, "recurrent": _recurrent,
    "quantized_conv": _quantized_conv, "reduction": _reduction, "integers": _integers, "positions": _positions,
    "movement": _movement, "normalization": _normalization,
}  # fmt: skip
COUNT = 25


def _compare(case: Case) -> None:
    node, operands, constants = case
    feeds = {name: array for name, array in operands.items() if name not in constants}
    inputs = [info(name, array.dtype, array.shape) for name, array in feeds.items()]
    kept = {name: array for name, array in operands.items() if name in constants}
    types = {i.name: i.type for i in (*inputs, *(info(n, a.dtype, a.shape) for n, a in kept.items()))}
    data = {name: package.numpy_helper.from_array(array) for name, array in kept.items()}
    opsets = [helper.make_opsetid("", OPSET)]
    schema = package.defs.get_schema(node.op_type, OPSET, "")
    inferred = package.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets)
    outputs = [helper.make_value_info(name, inferred[name]) for name in node.output if name]
    proto = model([node], inputs, outputs, kept, opset=OPSET)
    expected = onnxruntime_results(proto, feeds)
    found = graphdnn.onnx.load(proto).run(feeds)
    for got, wanted in zip(found.values(), expected, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        if wanted.dtype.kind in "iu":
            # A quantized result on the edge between two integers may be either.
            assert np.abs(got.astype(I64) - wanted.astype(I64)).max(initial=0) <= (node.op_type == "QLinearConv")
        else:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", DRAWN)
def test_drawn_nodes(family: str, seed: int) -> None:
    rng = np.random.default_rng([seed, *family.encode()])
    for _ in range(COUNT // 5):
        _compare(DRAWN[family](rng))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("family", DRAWN)
def test_many_drawn_nodes(family: str, seed: int) -> None:
    rng = np.random.default_rng([100 + seed, *family.encode()])
    for _ in range(50):
        _compare(DRAWN[family](rng))


def test_a_plain_lstm_is_one_operation() -> None:
    rng = np.random.default_rng(0)
    operands = {
        "x": _normal(rng, 5, 3, 4),
        "w": _normal(rng, 1, 24, 4),
        "r": _normal(rng, 1, 24, 6),
        "b": _normal(rng, 1, 48),
    }
    node = helper.make_node("LSTM", [*operands], ["y", "h", "c"], name="lstm", hidden_size=6)
    _compare((node, operands, ("w", "r", "b")))
    outputs = [info("y", F32, [5, 1, 3, 6]), info("h", F32, [1, 3, 6]), info("c", F32, [1, 3, 6])]
    constants = {k: a for k, a in operands.items() if k != "x"}
    text = graphdnn.onnx.load(model([node], [info("x", F32, [5, 3, 4])], outputs, constants)).explain()
    assert "rnn_fwd 'lstm'" in text
