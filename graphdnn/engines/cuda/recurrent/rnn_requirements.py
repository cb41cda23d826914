"""The needs of the engines of recurrent networks: an operation, and data with strides."""

from __future__ import annotations

from graphdnn.checks import AtMost, Equals, OneOf
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.extensions.extension_requirements import extension_needs
from graphdnn.engines.engine import Cost, Task, need
from graphdnn.engines.operation_cost import flops
from graphdnn.enums import DataType, Status
from graphdnn.operations import RecurrentOperation
from graphdnn.operations.rnn_spec import RnnSpec
from graphdnn.rules import Constraint

BARRIER = 2e-6  # seconds of one grid barrier
_SHARE = 0.5  # of the peak rate
_MOST_LAYERS = 256


def rnn_needs(engine: str, tag: str) -> tuple[Constraint, ...]:
    """The needs of an engine for one of the three operations; masks are first copied to bytes."""
    return (
        *extension_needs(engine, tag, packed=("masks",), by_value=("seed", "offset")),
        need(
            f"{engine}.layers",
            "layers",
            lambda task: rnn_of(task).layers,
            AtMost(_MOST_LAYERS),
            reason="each layer is launches of its own, which are all written when a plan is made",
            fix="divide the layers among several networks; the host serves any number",
            when=lambda task: task.op.main.tag == tag,
        ),
    )


def rnn_of(task: Task) -> RnnSpec:
    op = task.op.main
    assert isinstance(op, RecurrentOperation)
    return op.rnn


def half_needs(engine: str, tag: str, data: tuple[str, ...]) -> tuple[Constraint, ...]:
    """The needs of engines with tensor cores. ``data``: ports with a common type."""

    def is_asked(task: Task) -> bool:
        return task.op.main.tag == tag

    def types(task: Task) -> tuple[str, ...]:
        tensors = task.op.main.tensors()
        return tuple(dict.fromkeys(tensors[p].data_type.name for p in data if p in tensors))

    return (
        *rnn_needs(engine, tag),
        need(
            f"{engine}.types",
            f"{', '.join(data)}: data_type",
            types,
            OneOf(("HALF",), ("BFLOAT16",)),
            reason="tensor cores multiply 16-bit floats, with sums in FLOAT",
            fix="use HALF or BFLOAT16 for all of them, or another engine",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
            when=is_asked,
        ),
        need(
            f"{engine}.arithmetic",
            "arithmetic",
            lambda task: rnn_of(task).arithmetic,
            Equals(DataType.FLOAT),
            reason="tensor cores sum products of 16-bit floats as FLOAT",
            fix="use FLOAT, or another engine",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
            when=is_asked,
        ),
    )


def waiting_cost(task: Task, step: float = BARRIER, operand: DataType | None = None) -> Cost:
    """The cost of layers that loop over all steps with a grid barrier after each.

    ``operand``: the type that tensor cores multiply. Products with the state are small: a step takes at least ``step``.
    """
    op, rnn = task.op.main, rnn_of(task)
    rate = task.device.rate(op.compute_type if operand is None else operand) * _SHARE
    cost = device_cost(task, flops(op) / rate, rnn.scratch_bytes * 2.0, launches=1 + 2 * rnn.layers)
    return cost.plus({"waiting": rnn.layers * len(rnn.batch_sizes) * step})
