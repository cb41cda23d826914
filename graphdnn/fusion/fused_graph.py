"""FusedOp and FusedGraph: what the fusion pass decided, as lists one can read.

A ``FusedOp`` is what one engine serves: an anchor with pointwise operations before
(prologue) and after it (epilogue), possibly an exit reduction; or a pointwise
graph without anchor. Values inside it never touch memory unless they are bound
or another fused operation reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from graphdnn.fusion.limits import NO_LIMITS, FusionLimits
from graphdnn.fusion.tensor_roles import TensorRoles
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec
from graphdnn.text_format import facts, plural


@dataclass(frozen=True, slots=True)
class UnfusedEdge:
    """An edge of the graph that was not fused, and the rule that stopped it."""

    rule: str
    edge: tuple[int, int]  # indices of the operations it joins
    tensor: TensorSpec
    producer: str
    consumer: str
    attribute: str  # what the rule looked at: the consumer, the producer, the tensor or an operand
    actual: str
    required: str
    reason: str
    fix: str

    @property
    def subject(self) -> str:
        """The edge as text: the operation that writes the tensor and the operation that reads it."""
        return f"{self.producer} -> {self.consumer} through {self.tensor.label()}"

    def __str__(self) -> str:
        return f"{self.subject}: {self.actual}, required {self.required}; {self.reason} [{self.rule}]"

    def to_json(self) -> dict[str, object]:
        """Plain data with the fields of the record."""
        return {
            "rule": self.rule,
            "subject": self.subject,
            "tensor": self.tensor.uid,
            "producer": self.producer,
            "consumer": self.consumer,
            "actual": self.actual,
            "required": self.required,
            "reason": self.reason,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True, eq=False)
class KernelStructure:
    """What fused operations that differ in extents and strides only have in common."""

    name: str
    uses: TensorRoles


@dataclass(frozen=True, slots=True, eq=False)
class FusedOp:
    """The operations of one kernel: an anchor with pointwise operations before (prologue) and after it (epilogue)."""

    index: int
    rule: str  # id of the fusion rule, e.g. "conv"
    anchor: Operation | None
    prologue: tuple[Operation, ...]
    epilogue: tuple[Operation, ...]
    exit: Operation | None  # a reduction or statistics at the end
    inputs: tuple[TensorSpec, ...]  # read from memory, constants and by-value scalars included
    outputs: tuple[TensorSpec, ...]  # written to memory
    internal: tuple[TensorSpec, ...]  # stay in registers, rounded to their type
    structure: KernelStructure | None = field(default=None, init=False)  # where it is known
    _uses: TensorRoles | None = field(default=None, init=False)  # once somebody has asked

    def __repr__(self) -> str:
        return f"<FusedOp [{self.index}] {self.name}>"

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation, in execution order."""
        middle = () if self.anchor is None else (self.anchor,)
        end = () if self.exit is None else (self.exit,)
        return (*self.prologue, *middle, *self.epilogue, *end)

    @property
    def uses(self) -> TensorRoles:
        """What the kernel does with each of its tensors."""
        if self.structure is not None:
            return self.structure.uses
        if self._uses is None:
            object.__setattr__(self, "_uses", TensorRoles.of(self))
        assert self._uses is not None
        return self._uses

    def at_end(self) -> list[TensorSpec]:
        """The tensors that the epilogue reads, keeps in registers or writes. An operand of the anchor that the
        epilogue reads again is among them.
        """
        front_only = self.uses.front_only
        return [t for t in (*self.inputs, *self.outputs, *self.internal) if t.uid not in front_only]

    def sources(self, operands: Iterable[TensorSpec]) -> list[TensorSpec]:
        """The tensors in memory from which operands of the anchor are computed. An operand without a prologue is its
        own source.

        Args:
            operands: Operands of the anchor.

        Returns:
            The tensors.
        """
        asked, made = (t for step in self.prologue for t in step.inputs().values()), self.uses.made
        found = {t.uid: t for t in (*operands, *asked) if t.uid not in made}
        return [t for t in found.values() if not (t.is_by_value or t.is_constant)]

    def with_anchor(self, anchor: Operation) -> FusedOp:
        """The same kernel around an anchor that reads other tensors. Operations that nothing reads any more are left
        out.

        Args:
            anchor: The other anchor.

        Returns:
            The fused operation.
        """
        made = replace(self, anchor=anchor)
        read, known = made.uses.front | made.uses.behind, {t.uid for t in self.inputs} | made.uses.made
        others = [t for t in anchor.inputs().values() if t.uid not in known]
        return replace(made, inputs=(*[t for t in self.inputs if t.uid in read], *others))

    def leading_to(self, operand: TensorSpec) -> list[Operation]:
        """The operations of the prologue that compute one operand of the anchor, in execution order.

        Args:
            operand: The operand.

        Returns:
            The operations.
        """
        wanted, found = {operand.uid}, []
        for step in reversed(self.prologue):
            if any(t.uid in wanted for t in step.outputs().values()):
                wanted |= {t.uid for t in step.inputs().values()}
                found.append(step)
        return found[::-1]

    @property
    def main(self) -> Operation:
        """The operation that names the kernel: the anchor, or the first pointwise operation."""
        return self.operations[0] if self.anchor is None else self.anchor

    @property
    def name(self) -> str:
        """The tags of the operations, for example ``conv_fprop+add+relu_fwd``."""
        if self.structure is not None:
            return self.structure.name
        return "+".join(op.label().split(" ")[0] for op in self.operations)

    def __str__(self) -> str:
        ops = " + ".join(op.label() for op in self.operations)
        reads = ", ".join(t.label() for t in self.inputs)
        writes = ", ".join(t.label() for t in self.outputs)
        lines = [f"[{self.index}] {ops}   (rule {self.rule})", f"    reads {reads}", f"    writes {writes}"]
        if self.internal:
            kept = ", ".join(f"{t.label()} as {t.data_type.name}" for t in self.internal)
            lines.append(f"    never in memory: {kept}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain data: the rule, the operations and the tensors of the kernel."""
        return {
            "index": self.index,
            "name": self.name,
            "rule": self.rule,
            "operations": [op.label() for op in self.operations],
            "origins": [op.origin for op in self.operations],
            "anchor": None if self.anchor is None else self.anchor.label(),
            "prologue": [op.label() for op in self.prologue],
            "epilogue": [op.label() for op in self.epilogue],
            "exit": None if self.exit is None else self.exit.label(),
            "reads": [t.uid for t in self.inputs],
            "writes": [t.uid for t in self.outputs],
            "internal": [t.uid for t in self.internal],
        }


@dataclass(frozen=True, slots=True, eq=False)
class FusedGraph:
    """The graph as fused operations in execution order, with every edge that was not fused."""

    graph: OperationGraph
    operations: tuple[FusedOp, ...]
    stopped_by: tuple[UnfusedEdge, ...]
    declined_patterns: tuple[UnfusedEdge, ...] = ()  # chains that are one kernel of their own, but for this edge
    limits: FusionLimits = NO_LIMITS

    def __repr__(self) -> str:
        found = plural(len(self.graph.operations), "operation")
        return f"<FusedGraph {self.graph.name!r}: {found} in {plural(len(self), 'kernel')}>"

    @property
    def materialized(self) -> tuple[TensorSpec, ...]:
        """Virtual tensors that pass through memory: one kernel writes the tensor and another reads it, or nothing
        reads it.
        """
        written = {t.uid: t for op in self.operations for t in op.outputs if t.is_virtual}
        return tuple([written[uid] for uid in sorted(written)]) if written else ()

    def __iter__(self) -> Iterator[FusedOp]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def __str__(self) -> str:
        count = len(self.operations)
        total = len(self.graph.operations)
        lines = [f"{total} operation{'s' if total != 1 else ''} in {count} fused operation{'s' if count != 1 else ''}"]
        lines += [f"limits: {self.limits}"] if self.limits else []
        lines += [str(op) for op in self.operations]
        if self.stopped_by:
            lines.append("edges left unfused:")
            lines += [f"  {stop.subject}\n{_why(stop)}" for stop in self.stopped_by]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain data: the fused operations, and the edges that were not fused."""
        return {
            "operations": [op.to_json() for op in self.operations],
            "materialized": [t.uid for t in self.materialized],
            "stopped_by": [stop.to_json() for stop in self.stopped_by],
            "limits": self.limits.to_json(),
        }


def _why(stop: UnfusedEdge) -> str:
    rows = [("found", stop.actual), ("required", stop.required), ("why", stop.reason), ("fix", stop.fix),
            ("rule", stop.rule)]  # fmt: skip
    return facts(rows, "    ")
