"""Operands of a normalization, as its kernels access them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from graphdnn.checks import OneOf
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import gen_index_axes
from graphdnn.engines.engine import kind_need
from graphdnn.enums import DataType, NormMode, Status
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import NormBackward, NormForward
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec, ordered_strides, stride_order


@dataclass(frozen=True, slots=True)
class Operands:
    op: FusedOp
    anchor: NormForward | NormBackward
    read: tuple[TensorSpec, ...]  # tensors in memory from which the anchor's streamed operands are computed
    main: TensorSpec  # the largest of these tensors

    @classmethod
    def of(cls, op: FusedOp, anchor: NormForward | NormBackward) -> Operands:
        streamed = (anchor.x,) if isinstance(anchor, NormForward) else (anchor.x, anchor.dy)
        read = tuple(op.sources(streamed))
        largest = max(read, key=lambda t: t.elements, default=streamed[0])
        return cls(op, anchor, read, largest)

    @property
    def compute(self) -> str:
        return COMPUTE_TYPE[self.anchor.math_type]

    @property
    def compute_type(self) -> DataType:
        """The compute type as the type of a tensor."""
        return DataType.DOUBLE if self.compute == "double" else DataType.FLOAT

    @property
    def bytes(self) -> int:
        return COMPUTE[self.anchor.math_type].itemsize

    @property
    def centered(self) -> bool:
        return self.anchor.mode is not NormMode.RMS_NORM

    @property
    def is_plain(self) -> bool:
        """Whether nothing is fused and arithmetic is single precision."""
        return not self.op.prologue and not self.op.epilogue and self.compute == "float"

    @property
    def asked(self) -> frozenset[int]:
        return gen_index_axes(self.op.prologue) | gen_index_axes(self.op.epilogue)

    def epilogue(self) -> list[TensorSpec]:
        """Tensors that the epilogue reads and writes in memory."""
        op, made = self.op, self.op.uses.made
        main = self.anchor.y if isinstance(self.anchor, NormForward) else self.anchor.dx
        ends = [main, *(t for step in op.epilogue for t in step.outputs().values())]
        leaving = {t.uid for t in op.outputs}
        read = [t for step in op.epilogue for t in step.inputs().values() if t.uid not in made]
        return [*read, *(t for t in ends if t.uid in leaving)]

    @property
    def statistic_extents(self) -> tuple[int, ...]:
        axes = self.anchor.axes
        return tuple(1 if a in axes else extent for a, extent in enumerate(self.anchor.x.extents))

    def scalar(self, spec: TensorSpec) -> TensorSpec:
        """Whether a tensor has one element; its rank may differ from the rank of x."""
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


def of_rows(operands: Operands, number: int, extents: Sequence[int]) -> TensorSpec:
    """A tensor with one element for each row, in the compute type; ``number`` counts the kernel's own tensors."""
    op, main = operands.op, operands.main
    uid = min(0, *(t.uid for t in (*op.inputs, *op.outputs, *op.internal))) - 1 - number
    strides = ordered_strides(extents, stride_order(main.dims, main.strides))
    # The values are valid by construction, and validation would take longer than the rest of this module.
    own = {"uid": uid, "data_type": operands.compute_type, "dims": tuple(extents), "strides": strides}
    return TensorSpec.model_construct(**{**_plain(), **own})


@cache
def _plain() -> dict[str, Any]:
    """Default fields of a tensor."""
    return {name: field.default for name, field in TensorSpec.model_fields.items() if not field.is_required()}


def place(steps: LaunchSequence, specs: Sequence[TensorSpec | None]) -> None:
    """Allocates scratch memory for the kernel's own tensors."""
    for spec in specs:
        if spec is not None:
            steps.workspace_offsets[spec.uid] = steps.allocate(spec.bytes)


def direction(engine: str, tag: str) -> Constraint:
    """A need: both directions share one fusion rule, and each has its own engine."""
    return kind_need(
        f"{engine}.direction",
        "operation",
        lambda task: task.op.main.tag,
        OneOf(tag),
        reason="the engine is written for the other direction",
        fix="nothing to do: another engine serves this operation",
        status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
        when=lambda task: task.op.rule == "norm",
    )


def of_thread(name: str, of_row: str, arguments: str) -> str:
    """A function ``name`` for row ``i`` of a thread: the generated ``of_row`` at that row's coordinates."""
    names = ", ".join(argument.split()[-1] for argument in arguments.split(","))
    return (
        f"__device__ __forceinline__ void {name}(const Params& p, const int (&at)[RANK], int i, {arguments}) {{\n"
        "    int row_at[RANK];\n    #pragma unroll\n    for (int j = 0; j < RANK; ++j) row_at[j] = at[j];\n"
        f"    row_at[ROW_AXES - 1] += i;\n    {of_row}(p, row_at, {names});\n}}\n"
    )
