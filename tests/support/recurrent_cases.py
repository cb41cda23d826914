"""Minimal legal problems of the recurrent operations, and what breaks each of their rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legal_problems import tensor
from problems import LAYOUTS

from graphdnn.enums import DataType
from graphdnn.operations import EXTENSIONS, Cell, Operation, RnnSpec
from graphdnn.tensors import TensorSpec

_ROWS, _IN, _HIDDEN = 5, 4, 3


def spec(**fields: Any) -> RnnSpec:
    legal = {"cell": Cell.LSTM, "input_size": _IN, "hidden_size": _HIDDEN, "layers": 2, "batch_sizes": (2, 2, 1)}
    return RnnSpec(**{**legal, **fields})


WIDE = ("kept", "kept_gradients")  # ports in the type of the arithmetic


def network(
    tag: str,
    kind: str = "f32",
    layout: str = "packed",
    without: tuple[str, ...] = (),
    types: Any = None,
    **settings: Any,
) -> Operation:
    """An operation with every port but those ``without``, all data of one type but for ``types``."""
    net = spec(**settings)
    ports = EXTENSIONS[tag].model_fields.keys() - {"rnn", "name", "origin"} - set(without)
    states = [n for n in ("hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy") if net.cell is Cell.LSTM or "c" not in n]
    shapes = {
        **dict.fromkeys(("x", "dx"), (net.rows, net.input_size)), **dict.fromkeys(("y", "dy"), (net.rows, net.width)),
        **dict.fromkeys(("w", "dw"), (net.weight_count,)), **dict.fromkeys(states, net.states),
        **({"kept": (net.kept_count,)} if net.kept_count else {}), "kept_gradients": (net.gradient_count,),
        **({"masks": net.mask_extents, "seed": (1,), "offset": (1,)} if net.draws_masks else {}),
    }  # fmt: skip
    kinds = {"seed": "i64", "offset": "i32", "masks": "bool", **dict.fromkeys(WIDE, net.arithmetic), **(types or {})}
    fields = {
        port: TensorSpec(
            uid=i, data_type=kinds.get(port, kind), dims=shapes[port],
            strides=LAYOUTS["packed" if kinds.get(port) is DataType.BOOLEAN else layout](shapes[port]),
        )
        for i, port in enumerate(sorted(ports & shapes.keys()), start=1)
    }  # fmt: skip
    return EXTENSIONS[tag](rnn=net, **fields)


_SPEC = spec()
_STATES, _WEIGHTS = _SPEC.states, (_SPEC.weight_count,)
_KEPT, _GRADIENTS = (_SPEC.kept_count,), (_SPEC.gradient_count,)

LEGAL_RECURRENT: dict[str, Callable[[], dict[str, Any]]] = {
    "rnn_fwd": lambda: {
        "rnn": spec(), "x": tensor(1, (_ROWS, _IN)), "w": tensor(2, _WEIGHTS), "hx": tensor(3, _STATES),
        "cx": tensor(4, _STATES), "y": tensor(5, (_ROWS, _HIDDEN)), "hy": tensor(6, _STATES), "cy": tensor(7, _STATES),
        "kept": tensor(8, _KEPT),
    },
    "rnn_bwd_data": lambda: {
        "rnn": spec(), "y": tensor(1, (_ROWS, _HIDDEN)), "dy": tensor(2, (_ROWS, _HIDDEN)), "w": tensor(3, _WEIGHTS),
        "kept": tensor(4, _KEPT), "dx": tensor(5, (_ROWS, _IN)), "kept_gradients": tensor(6, _GRADIENTS),
    },
    "rnn_bwd_weights": lambda: {
        "rnn": spec(), "x": tensor(1, (_ROWS, _IN)), "y": tensor(2, (_ROWS, _HIDDEN)), "kept": tensor(3, _KEPT),
        "kept_gradients": tensor(4, _GRADIENTS), "dw": tensor(5, _WEIGHTS),
    },
}  # fmt: skip

_PROBS = (4, 2, 3)
LEGAL_RECURRENT["ctc_loss"] = lambda: {
    "probs": tensor(1, _PROBS), "labels": tensor(2, (2, 5), "i32"), "label_lengths": tensor(3, (2,), "i32"),
    "input_lengths": tensor(4, (2,), "i32"), "costs": tensor(5, (2,)), "gradients": tensor(6, _PROBS),
}  # fmt: skip

Make = Callable[..., Callable[[], Any]]


def recurrent_rule_cases(case: Make) -> dict[str, Callable[[], Any]]:
    """``case(tag, **changes)`` makes an operation with some fields changed when it is called."""
    gru = spec(cell=Cell.GRU)
    extents = {"rnn_fwd": "y", "rnn_bwd_data": "dx", "rnn_bwd_weights": "dw"}
    return {
        "rnn.sizes": lambda: spec(layers=0),
        "rnn.directions": lambda: spec(directions=3),
        "rnn.batch_sizes": lambda: spec(batch_sizes=()),
        "rnn.dropout": lambda: spec(dropout=1.5),
        "rnn.arithmetic": lambda: spec(arithmetic="f16"),
        "rnn.batch_sizes.order": lambda: spec(batch_sizes=(1, 2)),
        "rnn.skip_input": lambda: spec(skip_input=True),
        **{f"{tag}.extents": case(tag, **{port: tensor(9, (7, 7))}) for tag, port in extents.items()},
        **{f"{tag}.data_types": case(tag, kept=tensor(9, _KEPT, "f64")) for tag in extents},
        "rnn_fwd.output.overlap": case("rnn_fwd", y=tensor(9, (_ROWS, _HIDDEN), strides=(1, 1))),
        "rnn_bwd_data.output.overlap": case("rnn_bwd_data", dx=tensor(9, (_ROWS, _IN), strides=(1, 1))),
        "rnn_fwd.cells": case("rnn_fwd", rnn=gru, w=tensor(2, (gru.weight_count,)), kept=tensor(8, (gru.kept_count,))),
        "rnn_bwd_data.cells": case(
            "rnn_bwd_data", rnn=gru, w=tensor(2, (gru.weight_count,)), kept=tensor(8, (gru.kept_count,)),
            kept_gradients=tensor(6, (gru.gradient_count,)), dcx=tensor(7, _STATES),
        ),
        "rnn_fwd.dropout": case("rnn_fwd", seed=tensor(9, (1,), "i64")),
        "rnn_bwd_data.kept": case("rnn_bwd_data", kept=None),
        "rnn_bwd_weights.kept": case("rnn_bwd_weights", kept_gradients=None),
        "ctc_loss.rank": case("ctc_loss", labels=tensor(2, (10,), "i32")),
        "ctc_loss.arithmetic": case("ctc_loss", arithmetic="f16"),
        "ctc_loss.extents": case("ctc_loss", costs=tensor(5, (3,))),
        "ctc_loss.data_types": case("ctc_loss", labels=tensor(2, (2, 5), "i64")),
        "ctc_loss.output.overlap": case("ctc_loss", gradients=tensor(6, _PROBS, strides=(1, 1, 1))),
    }  # fmt: skip
