"""The needs of engines of extension operations: an operation, and tensors with strides."""

from __future__ import annotations

from graphdnn.checks import Empty, OneOf
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.engine import Task, need, needs_rule
from graphdnn.enums import Status
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec


def extension_needs(
    engine: str, tag: str, packed: tuple[str, ...] = (), by_value: tuple[str, ...] = ()
) -> tuple[Constraint, ...]:
    """The needs of the engine of one operation. ``packed``, ``by_value``: ports that may be packed or by value."""

    def is_odd(port: str, t: TensorSpec) -> bool:
        is_scalar = t.is_by_value or t.is_constant
        return (is_scalar and port not in by_value) or (not is_addressable(t) and port not in packed)

    def odd(task: Task) -> list[str]:
        return [t.label() for port, t in task.op.main.tensors().items() if is_odd(port, t)]

    return (
        needs_rule(f"{engine}.operation", "extension"),
        need(
            f"{engine}.kind",
            "operation",
            lambda task: task.op.main.tag,
            OneOf(tag),
            reason="the engine is written for another extension operation",
            fix="nothing to do: another engine serves this operation",
            status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
            when=lambda task: task.op.rule == "extension",
        ),
        need(
            f"{engine}.layout",
            "tensors",
            odd,
            Empty("elements that have addresses of their own"),
            reason="packed booleans, vectors of channels and scalars by value are not read here",
            fix="use BYTE_BOOLEAN, convert to NCHW before, or bind the scalar as a tensor",
            when=lambda task: task.op.rule == "extension" and task.op.main.tag == tag,
        ),
    )
