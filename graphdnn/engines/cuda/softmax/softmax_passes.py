"""The operations of a softmax by pass: the number of reductions that they depend on."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation, Reduction
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Stages:
    """The operations by pass (the reductions that they depend on), for elements or for rows."""

    op: FusedOp

    @property
    def reductions(self) -> list[Reduction]:
        return [step for step in self.op.operations if isinstance(step, Reduction)]

    @property
    def first(self) -> Reduction:
        assert isinstance(self.op.anchor, Reduction)
        return self.op.anchor

    @property
    def bytes(self) -> int:
        """The bytes of an element's kept value."""
        kept = (sum(ELEMENTS[t.data_type].bytes for t in self.kept(at)) for at in range(len(self.reductions)))
        return max(*kept, *(COMPUTE[step.compute_type].itemsize for step in self.op.operations))

    @property
    def plain_steps(self) -> list[PointwiseOperation]:
        """x - max and exp of it, if the second reduction adds these exponentials; otherwise nothing."""
        makers = {result_of(step).uid: step for step in self.op.operations if isinstance(step, PointwiseOperation)}
        power = makers.get(self.reductions[-1].x.uid)
        difference = None if power is None or power.x is None else makers.get(power.x.uid)
        if len(self.reductions) != 2 or power is None or difference is None:
            return []
        most = self.first
        operands = [t.uid for t in difference.inputs().values()]
        is_shifted = difference.spec.mode is PointwiseMode.SUB and operands == [most.x.uid, most.y.uid]
        return [difference, power] if is_shifted and power.spec.mode is PointwiseMode.EXP else []

    @property
    def is_plain(self) -> bool:
        """Whether exponentials are at most 1, one of them is 1, and their sum is in float without factors."""
        steps, total = self.plain_steps, self.reductions[-1]
        if not steps:
            return False
        kept = [*map(result_of, steps), total.y]
        return (
            all(t.data_type is DataType.FLOAT for t in kept)
            and all(COMPUTE_TYPE[step.compute_type] == "float" for step in (self.first, *steps, total))
            and all(step.alpha1 == step.alpha2 == 1.0 for step in steps)
            and self.first.y.data_type in (self.first.x.data_type, DataType.FLOAT)
            and self.first.x.data_type is not DataType.DOUBLE
        )

    def is_of_rows(self, step: Operation) -> bool:
        return isinstance(step, Reduction) or result_of(step).extents != self.first.x.extents

    def stage(self) -> dict[int, int]:
        """For the uid of every computed tensor: the number of reductions that it depends on."""
        stages: dict[int, int] = {}
        for step in self.op.operations:
            operand_stages = [stages.get(t.uid, 0) for t in step.inputs().values()]
            stages[result_of(step).uid] = max(operand_stages, default=0) + isinstance(step, Reduction)
        return stages

    def steps(self, stage: int, *, of_rows: bool) -> list[PointwiseOperation]:
        stages = self.stage()
        return [
            step
            for step in self.op.operations
            if isinstance(step, PointwiseOperation)
            and self.is_of_rows(step) is of_rows
            and stages[result_of(step).uid] == stage
        ]

    def row_values(self) -> dict[int, TensorSpec]:
        """All tensors that are computed for rows."""
        steps = [step for step in self.op.operations if self.is_of_rows(step)]
        return {t.uid: t for step in steps for t in step.outputs().values()}

    def kept(self, stage: int) -> list[TensorSpec]:
        """Elements that a pass has, from memory or computed, and that a later pass reads."""
        rows = self.row_values()

        def read(at: int) -> dict[int, TensorSpec]:
            operands = {
                t.uid: t for s in self.steps(at, of_rows=False) for t in s.inputs().values() if t.uid not in rows
            }
            if at < len(self.reductions):
                operands[self.reductions[at].x.uid] = self.reductions[at].x
            return {uid: t for uid, t in operands.items() if t.extents == self.first.x.extents}

        last = len(self.reductions)
        stages = self.stage()
        available = {uid for uid in read(stage) if stages.get(uid, 0) <= stage}
        available |= {t.uid for s in self.steps(stage, of_rows=False) for t in s.outputs().values()}
        if stage > 0:
            available |= {t.uid for t in self.kept(stage - 1)}
        later = {uid: t for at in range(stage + 1, last + 1) for uid, t in read(at).items()}
        return [t for uid, t in later.items() if uid in available]

    @property
    def kept_first(self) -> list[TensorSpec]:
        """Elements that the first reduction needs and a later pass reads; later passes can load the others."""
        first = self._first_uids()
        return [t for t in self.kept(0) if t.uid in first]

    def is_first(self, step: PointwiseOperation) -> bool:
        """Whether the first reduction needs the operation's result, or it is an output."""
        spec = result_of(step)
        return spec.uid in self._first_uids() or any(t.uid == spec.uid for t in self.op.outputs)

    def _first_uids(self) -> set[int]:
        """The elements of the first reduction, and all elements from which they are computed."""
        reduced = {self.first.x.uid}
        for step in reversed(self.op.operations):
            if not self.is_of_rows(step) and result_of(step).uid in reduced:
                reduced |= {t.uid for t in step.inputs().values()}
        return reduced


def result_of(step: Operation) -> TensorSpec:
    (result,) = step.outputs().values()
    return result
