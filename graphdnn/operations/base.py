"""Operation: a frozen spec of one node of a graph, with ports, shape rule and type rules.

A port is a field whose value is a tensor (or None, or a tuple of tensors); its
direction is in the attribute row. ``infer`` is the shape rule, written once per
operation: the graph builder calls it to make output tensors, the constraint
``<operation>.<port>.extents`` calls it to check the ones it was given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar

from graphdnn.checks import Check, Equals, OneOf
from graphdnn.dtypes import BOOLEANS, COMPUTE, ELEMENTS, INTEGER_COMPUTE
from graphdnn.enums import DataType, Status
from graphdnn.escaped import escaped
from graphdnn.rules import Constraint
from graphdnn.spec import Attr, ExtensionPort, Spec
from graphdnn.tensors import TensorSpec, may_overlap

Extents = tuple[int, ...]


class Operation(Spec):
    """Base of every operation spec."""

    tag: ClassVar[str]  # short name for reports: "conv_fprop"

    name: str = ""
    origin: str = ""  # "model.py:12", where the user created it

    @classmethod
    def infer(cls, fields: Mapping[str, Any]) -> dict[str, Extents]:
        """Extents of the outputs that follow from inputs and settings, given by field (tensors have ``.extents``)."""
        raise NotImplementedError

    @property
    def compute_type(self) -> DataType:
        """The type the arithmetic is done in."""
        raise NotImplementedError

    @property
    def reads_output(self) -> bool:
        """True when the old contents of the output are blended in (beta)."""
        return False

    @property
    def spare(self) -> tuple[str, ...]:
        """Results that the operation may be without, each for itself: what nothing reads need not be written."""
        return ()

    def inputs(self) -> dict[str, TensorSpec]:
        """Port -> tensor, for the ports that are set; a tuple of tensors gives ``inputs[0]``, ``inputs[1]`` ..."""
        return self._inputs.copy()

    def outputs(self) -> dict[str, TensorSpec]:
        return self._outputs.copy()

    @cached_property
    def _inputs(self) -> dict[str, TensorSpec]:
        return self._ports("input")

    @cached_property
    def _outputs(self) -> dict[str, TensorSpec]:
        return self._ports("output")

    def tensors(self) -> dict[str, TensorSpec]:
        return {**self.inputs(), **self.outputs()}

    def _ports(self, role: str) -> dict[str, TensorSpec]:
        found: dict[str, TensorSpec] = {}
        for field in ports(type(self), role):
            value = getattr(self, field)
            if isinstance(value, TensorSpec):
                found[field] = value
            elif isinstance(value, tuple):
                found.update({f"{field}[{i}]": tensor for i, tensor in enumerate(value)})
        return found

    def label(self) -> str:
        """``conv_fprop 'conv1'`` for reports."""
        return f"{self.tag} '{escaped(self.name)}'" if self.name else self.tag

    def line(self) -> str:
        """``conv_fprop 'conv1': x (uid 1) HALF, w (uid 2) HALF -> y (uid 3) HALF``."""
        ports = (self.inputs().values(), self.outputs().values())
        reads, writes = (", ".join(f"{t.label()} {t.data_type.name}" for t in tensors) for tensors in ports)
        return f"{self.label()}: {reads} -> {writes}"


def without_unread(operations: Iterable[Operation]) -> list[Operation]:
    """The operations without virtual results that none of them reads, as far as they may be without these."""
    operations = list(operations)
    read = {t.uid for op in operations for t in op.inputs().values()}
    found = []
    for op in operations:
        unread = [p for p, t in op.outputs().items() if p in op.spare and t.is_virtual and t.uid not in read]
        found.append(op.model_copy(update=dict.fromkeys(unread)) if unread else op)
    return found


@cache
def ports(cls: type[Spec], role: str) -> tuple[str, ...]:
    """Fields of an operation class that are tensor ports of this role, in field order."""
    return tuple(
        name
        for name, field in cls.model_fields.items()
        if any(isinstance(item, (Attr, ExtensionPort)) and item.role == role for item in field.metadata)
    )


def extents_constraint(id: str, port: str | Callable[[Any], str], reason: str, fix: str) -> Constraint:
    """The port's tensor has the extents that ``infer`` gives."""

    def name(op: Operation) -> str:
        return port if isinstance(port, str) else port(op)

    def expected(op: Operation) -> Check | None:
        inferred = op.infer(op.__dict__).get(name(op))
        return None if inferred is None or getattr(op, name(op)) is None else Equals(inferred)

    return Constraint(
        id=id,
        attribute=lambda op: f"{name(op)}.dims",
        look=lambda op: getattr(op, name(op)).extents,
        check=expected,
        reason=reason,
        fix=fix,
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )


def compute_constraints(
    prefix: str,
    field: str,
    allowed: tuple[DataType, ...],
    operands: Callable[[Any], Mapping[str, TensorSpec]],
) -> tuple[Constraint, ...]:
    """Type rules shared by everything that accumulates: the compute type exists and holds the operands."""
    return (
        Constraint(
            id=f"{prefix}.compute_type",
            attribute=field,
            look=lambda op: op.compute_type,
            check=OneOf(*allowed),
            reason="the arithmetic exists in these types only",
            fix="use FLOAT for floating data, INT32 (wrapping) or INT64 (exact) for integers",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
        ),
        operand_constraint(prefix, field, operands),
    )


def operand_constraint(prefix: str, field: str, operands: Callable[[Any], Mapping[str, TensorSpec]]) -> Constraint:
    """The compute type holds every operand."""

    def unheld(op: Operation) -> dict[str, str]:
        return {port: t.data_type.name for port, t in operands(op).items() if not holds(op.compute_type, t.data_type)}

    return Constraint(
        id=f"{prefix}.operand_types",
        attribute=field,
        look=lambda op: f"{op.compute_type.name} with {unheld(op)}",
        check=Equals("a compute type that holds every operand"),
        when=lambda op: bool(unheld(op)),
        reason="an integer compute type would lose the fractions of floating operands, and INT32 the high bits of "
        "INT64 operands",
        fix="use a floating compute type, or INT64; or convert the operand with an IDENTITY operation first",
        status=Status.NOT_SUPPORTED_DATA_TYPE,
    )


def holds(compute: DataType, operand: DataType) -> bool:
    """True when converting ``operand`` to the compute type cuts nothing but rounding."""
    if compute in BOOLEANS:
        return operand in BOOLEANS
    if compute in INTEGER_COMPUTE:
        return ELEMENTS[operand].kind != "float" and ELEMENTS[operand].bits <= COMPUTE[compute].itemsize * 8
    return True


def output_constraints(prefix: str, shown: Callable[[Any], Sequence[int]] | None = None) -> Constraint:
    """Outputs must not write one address twice; virtual ones lie in the workspace where a kernel ends with them.
    ``shown``: strides of the part of x that the operation's result is. Virtual, it may have them, whatever x has: what
    would be written twice is one element.
    """

    def overlapping(op: Operation) -> list[str]:
        found = [(p, t) for p, t in op.outputs().items() if may_overlap(t.dims, t.strides)]
        return [p for p, t in found if shown is None or not t.is_virtual or t.strides != tuple(shown(op))]

    return Constraint(
        id=f"{prefix}.output.overlap",
        attribute=lambda op: ", ".join(f"{p}.strides" for p in overlapping(op)),
        look=lambda op: [op.outputs()[p].strides for p in overlapping(op)],
        check=Equals("strides that give every element its own address"),
        when=lambda op: bool(overlapping(op)),
        reason="two elements of the output would be written to one address",
        fix="use packed_strides(dims), channels_last_strides(dims) or wider strides",
        status=Status.NOT_SUPPORTED_LAYOUT,
    )


def same_rank(prefix: str) -> Constraint:
    """Every tensor of the operation has the rank of the first one."""

    def ranks(op: Operation) -> dict[str, int]:
        return {p: t.rank for p, t in op.tensors().items()}

    return Constraint(
        id=f"{prefix}.rank",
        attribute="ranks",
        look=ranks,
        check=Equals("the same rank for every tensor"),
        when=lambda op: len(set(ranks(op).values())) > 1,
        reason="operands are matched axis by axis",
        fix="add axes of extent 1",
        status=Status.BAD_PARAM_SHAPE_MISMATCH,
    )
