"""Operands of a normalization, as its kernels access them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdnn.checks import OneOf
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.program import asked_indices
from graphdnn.engines.cuda.steps import Steps
from graphdnn.engines.engine import need
from graphdnn.enums import DataType, NormMode, Status
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import NormBackward, NormForward
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec, packed_strides


@dataclass(frozen=True, slots=True)
class Operands:
    op: FusedOp
    anchor: NormForward | NormBackward
    read: tuple[TensorSpec, ...]  # what the anchor's streamed operands are computed from, in memory
    main: TensorSpec  # the largest of them

    @classmethod
    def of(cls, op: FusedOp, anchor: NormForward | NormBackward) -> Operands:
        streamed = (anchor.x,) if isinstance(anchor, NormForward) else (anchor.x, anchor.dy)
        made = {t.uid for step in op.prologue for t in step.outputs().values()}
        asked = [t for step in op.prologue for t in step.inputs().values()]
        found = {t.uid: t for t in (*streamed, *asked) if t.uid not in made}
        read = tuple(t for t in found.values() if not (t.is_by_value or t.is_constant))
        largest = max(read, key=lambda t: t.elements, default=streamed[0])
        return cls(op, anchor, read, largest)

    @property
    def compute(self) -> str:
        return COMPUTE_TYPE[self.anchor.math_type]

    @property
    def compute_type(self) -> DataType:
        """As the type of a tensor."""
        return DataType.DOUBLE if self.compute == "double" else DataType.FLOAT

    @property
    def bytes(self) -> int:
        return COMPUTE[self.anchor.math_type].itemsize

    @property
    def centered(self) -> bool:
        return self.anchor.mode is not NormMode.RMS_NORM

    @property
    def asked(self) -> frozenset[int]:
        return asked_indices(self.op.prologue) | asked_indices(self.op.epilogue)

    def epilogue(self) -> list[TensorSpec]:
        """Tensors that the epilogue reads and writes in memory."""
        op = self.op
        made = {t.uid for step in op.operations for t in step.outputs().values()}
        main = self.anchor.y if isinstance(self.anchor, NormForward) else self.anchor.dx
        ends = [main, *(t for step in op.epilogue for t in step.outputs().values())]
        leaving = {t.uid for t in op.outputs}
        read = [t for step in op.epilogue for t in step.inputs().values() if t.uid not in made]
        return [*read, *(t for t in ends if t.uid in leaving)]

    def scalar(self, spec: TensorSpec) -> TensorSpec:
        """A tensor of one element, whose rank may be another than that of x."""
        ones = (1,) * self.anchor.x.rank
        return spec.model_copy(update={"dims": ones, "strides": ones})

    def epsilon(self, parameters: Parameters) -> str:
        """The device function that reads epsilon; 0 when there is none."""
        spec = self.anchor.epsilon
        value = "(Compute)0"
        if spec is not None:
            parameters.tensor("epsilon", spec)
            value = f"widen<Compute>(from_bits<{STORAGE[spec.data_type]}>(p.epsilon))"
        return f"__device__ __forceinline__ Compute epsilon(const Params& p) {{ return {value}; }}\n"


def scratch_tensor(steps: Steps, extents: Sequence[int], data_type: DataType) -> TensorSpec:
    """A tensor in the scratch memory of the kernel."""
    op = steps.op
    uid = min(0, *(t.uid for t in (*op.inputs, *op.outputs, *op.internal)), *steps.places) - 1
    spec = TensorSpec(uid=uid, data_type=data_type, dims=tuple(extents), strides=packed_strides(extents))
    steps.places[uid] = steps.allocate(spec.bytes)
    return spec


def direction(engine: str, tag: str) -> Constraint:
    """Forward and backward are one fusion rule and two engines."""
    return need(
        f"{engine}.direction",
        "operation",
        lambda task: task.op.main.tag,
        OneOf(tag),
        reason="the engine is written for the other direction",
        fix="nothing to do: another engine serves this operation",
        status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
        when=lambda task: task.op.rule == "norm",
    )
