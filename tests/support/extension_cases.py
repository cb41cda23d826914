"""A minimal legal problem of each extension operation, and what breaks each of their rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legal_problems import convolution, tensor
from recurrent_cases import LEGAL_RECURRENT, recurrent_rule_cases, spec

from graphdnn.operations import EXTENSIONS, Operation

_IMAGE, _GRID, _SAMPLED = (2, 3, 4, 5), (2, 3, 6, 2), (2, 3, 3, 6)

LEGAL_EXTENSIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "grid_sample": lambda: {"x": tensor(1, _IMAGE), "grid": tensor(2, _GRID), "y": tensor(3, _SAMPLED)},
    "grid_sample_bwd": lambda: {
        "x": tensor(1, _IMAGE), "grid": tensor(2, _GRID), "dy": tensor(3, _SAMPLED), "dx": tensor(4, _IMAGE),
        "dgrid": tensor(5, _GRID),
    },
    "patches": lambda: {"x": tensor(1, _IMAGE), "y": tensor(2, (12, 24)), "taps": (2, 2), "conv": convolution()},
    **LEGAL_RECURRENT,
}  # fmt: skip

assert set(LEGAL_EXTENSIONS) == set(EXTENSIONS), (
    f"LEGAL_EXTENSIONS (extension_cases.py) differs from EXTENSIONS in {set(LEGAL_EXTENSIONS) ^ set(EXTENSIONS)}"
)


def extension(tag: str, **changes: Any) -> Operation:
    """The minimal legal operation with some fields changed."""
    return EXTENSIONS[tag](**{**LEGAL_EXTENSIONS[tag](), **changes})


def recurrent(tag: str, kind: str, **settings: Any) -> Operation:
    """The minimal recurrent operation for a network of other settings, with data of another type."""
    net = spec(**settings)
    dims = {
        "x": (net.rows, net.input_size), "y": (net.rows, net.width), "w": (net.weight_count,), "dw": (net.weight_count,), "kept": (net.kept_count,),
        "kept_gradients": (net.gradient_count,),
        "dx": (net.rows, net.input_size), "dy": (net.rows, net.width), "hx": net.states, "hy": net.states, "cx": net.states, "cy": net.states,
    }  # fmt: skip
    legal = LEGAL_EXTENSIONS[tag]()
    changes = {
        port: tensor(i, dims[port], net.arithmetic if port.startswith("kept") else kind)
        for i, port in enumerate(sorted(legal.keys() - {"rnn"}), start=1)
    }
    return EXTENSIONS[tag](rnn=net, **changes)


def extension_named(name: str) -> Operation:
    """``patches``; ``rnn_fwd f16`` is of a network that tensor cores take."""
    tag, *kind = name.split()
    return recurrent(tag, kind[0], input_size=32, hidden_size=32) if kind else extension(tag)


def _case(tag: str, **changes: Any) -> Callable[[], Any]:
    return lambda: extension(tag, **changes)


def _overlapping(uid: int, dims: tuple[int, ...]) -> Any:
    return tensor(uid, dims, strides=(1,) * len(dims))


_SMALL = tensor(9, (1, 3, 1, 1))
EXTENSION_RULE_CASES: dict[str, Callable[[], Any]] = {
    "grid_sample.rank": _case("grid_sample", x=tensor(1, (2, 3, 4, 5, 1))),
    "grid_sample.grid.extents": _case("grid_sample", grid=tensor(2, (1, 3, 6, 2))),
    "grid_sample.compute_type": _case("grid_sample", arithmetic="i32"),
    "grid_sample.operand_types": _case("grid_sample", arithmetic="i32"),
    "grid_sample.y.extents": _case("grid_sample", y=_SMALL),
    "grid_sample.output.overlap": _case("grid_sample", y=_overlapping(3, _SAMPLED)),
    "grid_sample_bwd.rank": _case("grid_sample_bwd", dy=tensor(3, (2, 3, 3))),
    "grid_sample_bwd.grid.extents": _case("grid_sample_bwd", grid=tensor(2, (2, 3, 6, 3))),
    "grid_sample_bwd.compute_type": _case("grid_sample_bwd", arithmetic="i32"),
    "grid_sample_bwd.operand_types": _case("grid_sample_bwd", arithmetic="i32"),
    "grid_sample_bwd.dy.extents": _case("grid_sample_bwd", dy=_SMALL),
    "grid_sample_bwd.dx.extents": _case("grid_sample_bwd", dx=_SMALL),
    "grid_sample_bwd.dgrid.extents": _case("grid_sample_bwd", dgrid=_SMALL),
    "grid_sample_bwd.output.overlap": _case("grid_sample_bwd", dx=_overlapping(4, _IMAGE)),
    "patches.rank": _case("patches", x=tensor(1, (2, 3, 4))),
    "patches.taps": _case("patches", taps=(2, 2, 2)),
    "patches.data_type": _case("patches", y=tensor(2, (12, 24), "f16")),
    "patches.y.extents": _case("patches", y=tensor(2, (24, 12))),
    "patches.output.overlap": _case("patches", y=_overlapping(2, (12, 24))),
    **recurrent_rule_cases(_case),
}
