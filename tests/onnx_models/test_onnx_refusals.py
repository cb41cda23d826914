"""Needs of operators: a node that breaks one is refused with its attribute, its value and the reason."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx_models import info, model

pytest.importorskip("onnx.reference", reason="the package onnx is not installed")
from onnx import helper

import graphdnn.onnx
from graphdnn import NotSupported
from graphdnn.onnx.operators import OPERATORS

F32, F64, I64, U64 = np.float32, np.float64, np.int64, np.uint64


def _node(op_type: str, *shapes: Any, outputs: Any = None, dtypes: Any = (), **attributes: Any) -> Any:
    """A model of one node with inputs of these shapes."""
    names = [f"x{i}" for i in range(len(shapes))]
    kinds = [*dtypes, *[F32] * (len(shapes) - len(dtypes))]
    results = outputs or [("y", F32, [f"d{i}" for i in range(len(shapes[0]))])]
    node = helper.make_node(op_type, names, [name for name, *_ in results], name="node", **attributes)
    inputs = [info(n, k, s) for n, k, s in zip(names, kinds, shapes, strict=True)]
    return model([node], inputs, [info(*r) for r in results], opset=attributes.pop("opset", 20))


REFUSED = {
    "four spatial axes": (_node("Conv", (1, 2, 3, 3, 3, 3), (2, 2, 1, 1, 1, 1)), "spatial axes", "4"),
    "nine axes": (_node("Relu", (1,) * 9), "input 'x0'", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"),
    "cubic samples": (
        _node("GridSample", (1, 1, 4, 4), (1, 2, 2, 2), mode="cubic"), "mode", "cubic",
    ),
    "samples of volumes": (
        _node("GridSample", (1, 1, 4, 4, 4), (1, 2, 2, 2, 3)), "rank of the input", "5",
    ),
    "UINT64 quotients": (
        _node("Div", (2,), (2,), dtypes=(U64, U64), outputs=[("y", U64, [2])]), "element type", "UINT64",
    ),
    "shifts of UINT64": (
        _node("BitShift", (2,), (2,), dtypes=(U64, U64), outputs=[("y", U64, [2])], direction="LEFT"),
        "element type", "UINT64",
    ),
    "three operands": (_node("Einsum", (2,), (2,), (2,), equation="i,i,i->i"), "equation", "i,i,i->i"),
    "a large dilated window": (
        _node("MaxPool", (1, 1, 2000), kernel_shape=[600], dilations=[2]), "extents of a dilated window", "600",
    ),
    "many pairs": (_node("TopK", (1, 5000), (1,), dtypes=(F32, I64), outputs=[("y", F32, [1, "k"]), ("i", I64, [1, "k"])]),
                   "pairs of elements", "25000000"),
    "strings": (_node("Identity", (2,), dtypes=(object,), outputs=[("y", object, [2])]), "input 'x0'", "STRING"),
    "complex numbers": (
        _node("Identity", (2,), dtypes=(np.complex64,), outputs=[("y", np.complex64, [2])]), "input 'x0'", "COMPLEX64",
    ),
    "data-dependent extents": (_node("NonZero", (4,), outputs=[("y", I64, [1, "n"])]), "op_type", "NonZero, version 20"),
    "deformable convolution": (
        _node("DeformConv", (1, 1, 3, 3), (1, 1, 2, 2), (1, 8, 2, 2)), "op_type", "DeformConv, version 20",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    proto, attribute, value = REFUSED[case]
    feeds = {"x0": np.zeros((1, 5000), F32), "x1": np.array([2], I64)} if case == "many pairs" else None
    with pytest.raises(NotSupported) as caught:
        graphdnn.onnx.load(proto).run(feeds or {})
    (rejection,) = [r for r in caught.value.rejections if r.attribute == attribute]
    assert rejection.shown_value == value
    assert rejection.where.startswith("node 'node' (")
    assert rejection.expected
    assert rejection.reason
    assert rejection.fix


def test_needs_are_whole() -> None:
    """Every row of the table says what it asks, and why."""
    rows = [row for rows in OPERATORS.values() for row in rows]
    assert len(rows) > 150
    for row in rows:
        assert row.since <= row.until
        for need in row.needs:
            assert str(need.check) not in ("", "one of "), row.op_type
            assert need.attribute, row.op_type
            assert need.reason, row.op_type
            assert need.fix, row.op_type


def test_versions_of_an_operator_do_not_overlap() -> None:
    for (_, op_type), rows in OPERATORS.items():
        ranges = sorted((row.since, row.until) for row in rows)
        assert all(a[1] < b[0] for a, b in pairwise(ranges)), op_type


def test_operators_exist_in_onnx() -> None:
    """Every row names an operator of ONNX that has a version in its range."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    for (domain, op_type), rows in OPERATORS.items():
        for row in rows:
            schema = onnx.defs.get_schema(op_type, min(row.until, newest), domain)
            assert schema.since_version <= row.until, op_type
