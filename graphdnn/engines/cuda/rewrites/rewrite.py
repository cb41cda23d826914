"""Rewrite: one row of the table of rewrites, and what a rewrite returns.

A rewrite replaces a fused operation by an equivalent operation, which other engines compute, and by launches before and
after it. ``rewrite_engine.py`` makes an engine of each row. A row states match, rewrite and cost only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from graphdnn.engines.cuda.codegen.cost import with_launches
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.engine import Cost, Engine, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """Launches before or after the rewritten operation, and the tensor in scratch memory that they write or read."""

    summary: str  # the text in ``explain``
    scratch: TensorSpec
    bytes: float  # read and written by the launches
    add: Callable[[LaunchSequence], None]  # adds the launches, once the scratch tensor has its place
    result: TensorSpec | None = None  # written by a pass after the rewritten operation
    is_blended: bool = False  # the scratch tensor first receives the old contents of the result (beta)


def copied_before(spec: TensorSpec, copy: TensorSpec, summary: str) -> Pass:
    """The pass that copies ``spec`` to ``copy`` in scratch memory."""
    return Pass(summary, copy, float(spec.bytes + copy.bytes), lambda steps: steps.copy_into(spec, copy))


def copied_after(copy: TensorSpec, result: TensorSpec, summary: str, *, is_blended: bool = False) -> Pass:
    """The pass that copies ``copy`` in scratch memory to ``result``."""
    traffic = float(copy.bytes + result.bytes)
    return Pass(summary, copy, traffic, lambda steps: steps.copy_into(copy, result), result, is_blended)


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """A rewritten operation with its passes. It accesses tensors of the fused operation, and scratch tensors."""

    op: FusedOp
    before: tuple[Pass, ...] = ()  # each fills its scratch tensor
    after: tuple[Pass, ...] = ()  # each reads its scratch tensor, which the rewritten operation writes
    excluded: tuple[Engine, ...] = ()  # engines of the row that may not compute this form

    @property
    def passes(self) -> tuple[Pass, ...]:
        return (*self.before, *self.after)


@dataclass(frozen=True, slots=True)
class DelegateRefusal:
    """The refusal if no engine serves the rewritten operation."""

    expected: str
    reason: str = "these engines compute the rewritten operation, and each of them declines it"
    fix: str = "nothing to do: another engine serves it"
    rule: str = "rest"  # the part of the rule's id after the engine's name


def _predicted(form: Rewritten, engine: Engine, cost: Cost) -> Cost:
    return cost


def with_passes(part: str) -> Callable[[Task, Rewritten, Cost], Cost]:
    """The cost of the rewritten operation and of its passes as copies. ``part``: the name of the passes in the cost."""

    def cost(task: Task, form: Rewritten, delegate_cost: Cost) -> Cost:
        traffic = sum([one.bytes for one in form.passes], 0.0)
        return with_launches(delegate_cost, task.device, part, traffic, len(form.passes))

    return cost


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rewrite:
    """One row. Its engine has the name ``cuda_NAME``."""

    id: int  # of the engine; never reused
    name: str
    summary: str
    why: str  # the rewrite applies, in ``explain``
    match: tuple[Constraint, ...]  # requirements of a task
    rewrite: Callable[[FusedOp], tuple[Rewritten, ...]]  # of an operation that matches; empty if there is no form
    engines: tuple[Engine, ...]  # that may compute the rewritten operation; of equally fast engines the first is chosen
    refusal: DelegateRefusal
    cost: Callable[[Task, Rewritten, Cost], Cost]  # of all launches, from the cost of the chosen engine
    compared: Callable[[Rewritten, Engine, Cost], Cost] = _predicted  # the cost by which the fastest engine is chosen
    least: Callable[[Task], float] = lambda task: 0.0  # a lower bound of the predicted seconds
    notes: dict[str, Any] = field(default_factory=dict)  # numerical notes and error factors of the row's engines
    layout: LayoutType = LayoutType.PREFERRED_NHWC

    @property
    def engine_name(self) -> str:
        return f"cuda_{self.name}"
