"""A softmax of few long rows: each reduction is spread over all multiprocessors, then the elements follow.

Each kernel computes its elements again from memory, with the same roundings. Results of rows pass through scratch
memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.pointwise.pointwise import generate_pointwise
from graphdnn.engines.cuda.reduction.reduction import generate_reduction
from graphdnn.engines.cuda.softmax.softmax_passes import Stages
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, Reduction
from graphdnn.tensors import TensorSpec

LAUNCHES = 5  # two for each reduction
_WORTH = 2**19  # bytes that a CTA would read repeatedly; above, the launches take less time


def is_worth_dividing(stages: Stages, blocks: int, device: DeviceSpec) -> bool:
    """``blocks``: CTAs of a kernel with a row in each CTA."""
    return blocks < device.sm_count and sum(t.bytes for t in stages.op.inputs) >= _WORTH * blocks


def generate_divided(stages: Stages, device: DeviceSpec) -> DeviceKernel:
    op = stages.op
    steps = LaunchSequence(op, device)
    leaving = {t.uid for t in op.outputs}
    for stage, reduction in enumerate(stages.reductions):
        ends = stages.steps(stage + 1, of_rows=True)
        for spec in (t for step in (reduction, *ends) for t in step.outputs().values() if t.uid not in leaving):
            steps.workspace_offsets[spec.uid] = steps.allocate(spec.bytes)
        _include(steps, _needed(stages, [reduction.x]), reduction, ends)
    _include(steps, _needed(stages, [t for t in op.outputs if t.uid not in stages.row_values()]), None, ())
    return steps.kernel(f"softmax__divided__{op.name}")


def _needed(stages: Stages, results: Sequence[TensorSpec]) -> list[Operation]:
    """The operations on elements that compute these tensors."""
    uids, needed = {t.uid for t in results}, list[Operation]()
    for step in reversed(stages.op.operations):
        if not stages.is_of_rows(step) and any(t.uid in uids for t in step.outputs().values()):
            needed.insert(0, step)
            uids |= {t.uid for t in step.inputs().values()}
    return needed


def _include(
    steps: LaunchSequence, elements: Sequence[Operation], reduction: Reduction | None, ends: Sequence[Operation]
) -> None:
    """One kernel: ``elements``, then the reduction and the operations on its result; or elements alone."""
    every = [*elements, *([] if reduction is None else [reduction]), *ends]
    computed = {t.uid: t for step in every for t in step.outputs().values()}
    read = {t.uid: t for step in every for t in step.inputs().values() if t.uid not in computed}
    stored = {t.uid for t in steps.op.outputs} | set(steps.workspace_offsets)
    if reduction is not None:
        stored -= {t.uid for step in elements for t in step.outputs().values()}
    outputs = tuple(t for uid, t in computed.items() if uid in stored)
    inside = tuple(t for uid, t in computed.items() if uid not in stored)
    inputs = tuple(read.values())
    if reduction is None:
        alone = FusedOp(steps.op.index, "pointwise", None, (), tuple(elements), None, inputs, outputs, inside)
        steps.include(generate_pointwise(alone, steps.device), alone)
        return
    alone = FusedOp(steps.op.index, "reduction", reduction, tuple(elements), tuple(ends), None, inputs, outputs, inside)
    steps.include(generate_reduction(alone, steps.device), alone)
