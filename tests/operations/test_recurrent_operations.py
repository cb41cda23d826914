"""Recurrent operations and the CTC loss as nodes of graphs: layouts, types, bad numbers, nothing left unwritten."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from problems import LAYOUTS, POISONS, execute, values_of
from recurrent_cases import LEGAL_RECURRENT, spec

from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.engines.numpy_general import ENGINE
from graphdnn.enums import DataType
from graphdnn.operations import EXTENSIONS, Cell, Operation
from graphdnn.tensors import TensorSpec

TAGS = list(LEGAL_RECURRENT)
CELLS = [{"cell": cell, "directions": 1 + cell % 2, "dropout": 0.25} for cell in Cell]


def network(tag: str, **settings: Any) -> Operation:
    """An operation with every port, for a network of other settings."""
    rnn = spec(**settings)
    ports = EXTENSIONS[tag].model_fields.keys() - {"rnn", "name", "origin"}
    lstm = rnn.cell is Cell.LSTM
    shapes = {
        **dict.fromkeys(("x", "dx"), (rnn.rows, rnn.input_size)), **dict.fromkeys(("y", "dy"), (rnn.rows, rnn.width)),
        **dict.fromkeys(("w", "dw"), (rnn.weight_count,)),
        **{n: rnn.states for n in ("hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy") if lstm or "c" not in n},
        "kept": (rnn.kept_count,), "kept_gradients": (rnn.gradient_count,), "masks": rnn.mask_extents, "seed": (1,),
        "offset": (1,),
    }  # fmt: skip
    kinds = {"seed": "i64", "offset": "i32", "masks": "bool"}
    fields = {
        port: TensorSpec(
            uid=i, data_type=kinds.get(port, "f32"), dims=shapes[port], strides=LAYOUTS["packed"](shapes[port])
        )
        for i, port in enumerate(sorted(ports & shapes.keys()), start=1)
    }
    return EXTENSIONS[tag](rnn=rnn, **fields)


def operations() -> list[Any]:
    found = [pytest.param(EXTENSIONS[tag](**LEGAL_RECURRENT[tag]()), id=tag) for tag in TAGS]
    for tag in TAGS[:3]:
        found += [pytest.param(network(tag, **s), id=f"{tag}-{s['cell'].name}-{s['directions']}") for s in CELLS]
    return found


every = pytest.mark.parametrize("op", operations())


def in_layout(op: Operation, layout: str, kind: str | None = None) -> Operation:
    """The same with other strides, and with data of another type; what is kept has the type of the arithmetic."""

    def described(port: str, t: TensorSpec) -> TensorSpec:
        strides = t.strides if t.elements == 1 else LAYOUTS[layout](t.dims)
        data = kind and t.data_type is DataType.FLOAT and not port.startswith("kept")
        return TensorSpec(**{**t.model_dump(), "strides": strides, **({"data_type": kind} if data else {})})

    return op.model_copy(update={port: described(port, t) for port, t in op.tensors().items()})


def inputs_of(op: Operation) -> dict[int, Array]:
    rng, found = np.random.default_rng(4), {}
    for port, t in op.inputs().items():
        found[t.uid] = values_of(t, rng)
        if port == "probs":
            found[t.uid] = rng.dirichlet(np.ones(t.dims[-1]), t.dims[:-1]).astype(np.float32)
        elif port in ("labels", "label_lengths", "input_lengths"):
            low, high = {"labels": (1, 2), "label_lengths": (0, 2), "input_lengths": (3, 4)}[port]
            found[t.uid] = rng.integers(low, high, t.dims, endpoint=True).astype(np.int32)
    return found


@every
def test_every_output_element_is_written(op: Operation) -> None:
    strange, inputs = in_layout(op, "gaps"), inputs_of(op)
    first, second = (execute(strange, inputs, ENGINE, poison=poison) for poison in POISONS)
    assert set(first) == {t.uid for t in op.outputs().values()}
    for uid in first:
        assert first[uid].tobytes() == second[uid].tobytes()
        assert np.isfinite(first[uid].astype(np.float64)).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@every
def test_layouts_change_no_result(op: Operation, layout: str) -> None:
    inputs = inputs_of(op)
    packed, other = (execute(in_layout(op, how), inputs, ENGINE) for how in ("packed", layout))
    for uid, expected in packed.items():
        np.testing.assert_allclose(other[uid].astype(np.float64), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["f64", "f16", "bf16", "e4m3"])
@every
def test_narrow_types_round_the_same_result(op: Operation, kind: str) -> None:
    """Inputs that every type holds exactly: outputs differ by their rounding, and by that of the states."""
    step, low = (0.125, 0.125) if op.tag == "ctc_loss" else (0.5, -2)
    inputs = {
        uid: np.clip(np.rint(v / step) * step, low, 2).astype(v.dtype) if v.dtype.kind == "f" else v
        for uid, v in inputs_of(op).items()
    }
    expected, found = (execute(in_layout(op, "packed", k), inputs, ENGINE) for k in ("f32", kind))
    bound = {"f64": 1e-5, "f16": 1e-2, "bf16": 1e-1, "e4m3": 1.0}[kind]
    for uid, values in expected.items():
        wide = ELEMENTS[DataType.FP8_E4M3] if kind == "e4m3" else ELEMENTS[DataType.FLOAT]
        limited = np.clip(values.astype(np.float64), wide.smallest, wide.largest)
        scale = max(1.0, float(np.abs(limited).max()))
        assert np.abs(found[uid].astype(np.float64) - limited).mean() <= bound * scale


@every
def test_any_bits_run_quietly(op: Operation) -> None:
    rng, inputs = np.random.default_rng(1), inputs_of(op)
    for t in op.inputs().values():
        if t.data_type is not DataType.BYTE_BOOLEAN:
            dtype = ELEMENTS[t.data_type].numpy
            inputs[t.uid] = np.frombuffer(rng.bytes(prod(t.dims) * dtype.itemsize), dtype).reshape(t.dims)
    first, second = (execute(op, inputs, ENGINE, poison=poison) for poison in POISONS)
    for uid in first:
        np.testing.assert_array_equal(first[uid], second[uid])
