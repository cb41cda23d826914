"""Recurrent networks: a whole stack of layers over all steps as one operation, and its two gradients.

Rows of all steps lie one after another in x and y. What training keeps for the gradients is in tensors of its own:
``kept`` (gates, cells, outputs below the top layer), ``masks`` (dropout) and ``kept_gradients``, which the gradient
of the data leaves for that of the weights. States are rounded to y's type at each step, as y is.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from graphdnn.checks import Equals, OneOf
from graphdnn.dtypes import BOOLEANS, FLOATS, INTEGERS
from graphdnn.enums import DataType, Status
from graphdnn.operations.base import Extents, output_constraints, ports
from graphdnn.operations.extension import Extension
from graphdnn.operations.rnn_spec import Cell, RnnSpec
from graphdnn.rules import Constraint
from graphdnn.spec import ExtensionPort
from graphdnn.tensors import TensorSpec

_CELLS = ("cx", "cy", "dcx", "dcy")
_INPUT, _OUTPUT = ExtensionPort("input"), ExtensionPort("output")


def _wanted(rnn: RnnSpec) -> dict[str, Extents]:
    """Extents of every port."""
    rows = dict.fromkeys(("x", "dx"), (rnn.rows, rnn.input_size)) | dict.fromkeys(("y", "dy"), (rnn.rows, rnn.width))
    weights = dict.fromkeys(("w", "dw"), (rnn.weight_count,))
    states = dict.fromkeys(("hx", "hy", "dhx", "dhy", *_CELLS), rnn.states)
    kept = {"kept": (rnn.kept_count,), "kept_gradients": (rnn.gradient_count,), "masks": rnn.mask_extents}
    return {**rows, **weights, **states, **kept, "seed": (1,), "offset": (1,)}


def _misfits(op: Any) -> dict[str, Extents]:
    wanted = _wanted(op.rnn)
    return {p: t.extents for p, t in op.tensors().items() if t.extents != wanted[p]}


def _allowed(op: Any, port: str) -> tuple[DataType, ...]:
    if port in ("kept", "kept_gradients"):
        return (op.rnn.arithmetic,)
    if port == "masks":
        return BOOLEANS
    if port in ("seed", "offset"):
        return tuple(t for t in INTEGERS if t in (DataType.INT32, DataType.INT64))
    return FLOATS


def _wrong_types(op: Any) -> dict[str, str]:
    return {p: t.data_type.name for p, t in op.tensors().items() if t.data_type not in _allowed(op, p)}


def _cell_ports(op: Any) -> list[str]:
    return [p for p in op.tensors() if p in _CELLS]


def _missing(op: Any, needed: tuple[str, ...]) -> list[str]:
    return [p for p in needed if getattr(op, p) is None]


def _network(prefix: str) -> tuple[tuple[Constraint, ...], ...]:
    return (
        (
            Constraint(
                id=f"{prefix}.extents",
                attribute=lambda op: ", ".join(f"{p}.dims" for p in _misfits(op)),
                look=lambda op: tuple(_misfits(op).values()),
                check=lambda op: Equals(tuple(_wanted(op.rnn)[p] for p in _misfits(op))),
                when=lambda op: bool(_misfits(op)),
                reason="batch sizes, sizes and layers of the network fix every extent",
                fix="use the expected extents",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
            Constraint(
                id=f"{prefix}.data_types",
                attribute=lambda op: ", ".join(f"{p}.data_type" for p in _wrong_types(op)),
                look=lambda op: tuple(_wrong_types(op).values()),
                check=lambda op: OneOf(*dict.fromkeys(_allowed(op, p)[0].name for p in _wrong_types(op))),
                when=lambda op: bool(_wrong_types(op)),
                reason="data is floating, what is kept has the type of the arithmetic, masks are booleans",
                fix="use the expected types, or for data any floating type",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
        ),
    )


def _states(prefix: str) -> tuple[Constraint, ...]:
    return (
        Constraint(
            id=f"{prefix}.cells",
            attribute=lambda op: ", ".join(_cell_ports(op)),
            look=lambda op: op.rnn.cell.name,
            check=Equals(Cell.LSTM.name),
            when=lambda op: op.rnn.cell is not Cell.LSTM and bool(_cell_ports(op)),
            reason="only LSTM has a cell state beside its output",
            fix="leave these ports out",
        ),
        output_constraints(prefix),
    )


def _needs_kept(prefix: str, *, gradients: bool) -> Constraint:
    """What a gradient reads has to be there."""

    def needed(op: Any) -> tuple[str, ...]:
        names = ("kept",) if op.rnn.kept_count else ()
        return names + (("masks",) if op.rnn.draws_masks else ()) + (("kept_gradients",) if gradients else ())

    return Constraint(
        id=f"{prefix}.kept",
        attribute=lambda op: ", ".join(_missing(op, needed(op))),
        look=lambda op: None,
        check=Equals("what the forward pass kept"),
        when=lambda op: bool(_missing(op, needed(op))),
        reason="the gradient reads the gates and the masks of the forward operation",
        fix="run the forward operation with these outputs first",
    )


class RecurrentOperation(Extension):
    """What the three have in common."""

    rnn: RnnSpec

    def label(self) -> str:
        """``rnn_fwd (GRU, 2 layers, 512 to 256, 20 steps of 64)`` for reports."""
        return f"{super().label()} ({self.rnn})"

    @property
    def compute_type(self) -> DataType:
        return self.rnn.arithmetic

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        wanted = _wanted(fields["rnn"])
        return {name: wanted[name] for name in ports(cls, "output")}


def _partly_random(op: "RnnForward") -> bool:
    return 0 < len(_missing(op, ("seed", "offset", "masks"))) < 3


class RnnForward(RecurrentOperation):
    """y, hy, cy of a stack of recurrent layers, and what the gradients read: kept and masks."""

    tag = "rnn_fwd"
    constraints = (
        *_network("rnn_fwd"),
        (
            *_states("rnn_fwd"),
            Constraint(
                id="rnn_fwd.dropout",
                attribute="seed, offset, masks",
                look=lambda op: _missing(op, ("seed", "offset", "masks")),
                check=Equals("all three, or none"),
                when=_partly_random,
                reason="masks are drawn from seed and offset, and the gradients read them",
                fix="give all three in training with dropout, none otherwise",
            ),
        ),
    )

    x: Annotated[TensorSpec, _INPUT]
    w: Annotated[TensorSpec, _INPUT]
    hx: Annotated[TensorSpec | None, _INPUT] = None
    cx: Annotated[TensorSpec | None, _INPUT] = None
    seed: Annotated[TensorSpec | None, _INPUT] = None
    offset: Annotated[TensorSpec | None, _INPUT] = None
    y: Annotated[TensorSpec, _OUTPUT]
    hy: Annotated[TensorSpec | None, _OUTPUT] = None
    cy: Annotated[TensorSpec | None, _OUTPUT] = None
    kept: Annotated[TensorSpec | None, _OUTPUT] = None
    masks: Annotated[TensorSpec | None, _OUTPUT] = None

    @property
    def spare(self) -> tuple[str, ...]:
        return "hy", "cy", "kept"  # masks go with their seed

    @property
    def scratch_bytes(self) -> int:
        return self.rnn.scratch_bytes


class RnnBackwardData(RecurrentOperation):
    """Gradients of x, hx and cx, and what those of the weights are made from."""

    tag = "rnn_bwd_data"
    constraints = (
        *_network("rnn_bwd_data"),
        (*_states("rnn_bwd_data"), _needs_kept("rnn_bwd_data", gradients=False)),
    )

    y: Annotated[TensorSpec, _INPUT]
    dy: Annotated[TensorSpec, _INPUT]
    dhy: Annotated[TensorSpec | None, _INPUT] = None
    dcy: Annotated[TensorSpec | None, _INPUT] = None
    w: Annotated[TensorSpec, _INPUT]
    hx: Annotated[TensorSpec | None, _INPUT] = None
    cx: Annotated[TensorSpec | None, _INPUT] = None
    kept: Annotated[TensorSpec | None, _INPUT] = None
    masks: Annotated[TensorSpec | None, _INPUT] = None
    dx: Annotated[TensorSpec, _OUTPUT]
    dhx: Annotated[TensorSpec | None, _OUTPUT] = None
    dcx: Annotated[TensorSpec | None, _OUTPUT] = None
    kept_gradients: Annotated[TensorSpec, _OUTPUT]

    @property
    def spare(self) -> tuple[str, ...]:
        return "dhx", "dcx"


class RnnBackwardWeights(RecurrentOperation):
    """The gradient of the packed weights."""

    tag = "rnn_bwd_weights"
    constraints = (*_network("rnn_bwd_weights"), (_needs_kept("rnn_bwd_weights", gradients=True),))

    x: Annotated[TensorSpec, _INPUT]
    hx: Annotated[TensorSpec | None, _INPUT] = None
    y: Annotated[TensorSpec, _INPUT]
    kept: Annotated[TensorSpec | None, _INPUT] = None
    masks: Annotated[TensorSpec | None, _INPUT] = None
    kept_gradients: Annotated[TensorSpec | None, _INPUT] = None
    dw: Annotated[TensorSpec, _OUTPUT]
