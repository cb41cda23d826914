"""Rewrite: one row of the table of rewrites, and what a rewrite returns.

A rewrite replaces a fused operation by another one, which other engines compute, and by launches before and after it.
``rewrite_engine.py`` makes an engine of each row, so that a row states nothing but match, rewrite and cost.
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

    summary: str  # as ``explain`` says it
    scratch: TensorSpec
    bytes: float  # that it moves
    add: Callable[[LaunchSequence], None]  # adds the launches, once the scratch tensor has its place
    result: TensorSpec | None = None  # of the fused operation; a pass after the rewritten operation writes it
    is_blended: bool = False  # the rewritten operation reads old contents of the result, in the scratch tensor


def copied_before(spec: TensorSpec, copy: TensorSpec, summary: str) -> Pass:
    """``spec`` is copied to ``copy`` in scratch memory."""
    return Pass(summary, copy, float(spec.bytes + copy.bytes), lambda steps: steps.copy_into(spec, copy))


def copied_after(copy: TensorSpec, result: TensorSpec, summary: str, *, is_blended: bool = False) -> Pass:
    """``copy`` in scratch memory is copied to ``result``."""
    traffic = float(copy.bytes + result.bytes)
    return Pass(summary, copy, traffic, lambda steps: steps.copy_into(copy, result), result, is_blended)


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten:
    """The operation in another form. It reads and writes tensors of the fused operation, and scratch tensors."""

    op: FusedOp
    before: tuple[Pass, ...] = ()  # each fills its scratch tensor
    after: tuple[Pass, ...] = ()  # each reads its scratch tensor, which the rewritten operation writes
    without: tuple[Engine, ...] = ()  # engines of the row that are not asked for this form

    @property
    def passes(self) -> tuple[Pass, ...]:
        return (*self.before, *self.after)


@dataclass(frozen=True, slots=True)
class Remainder:
    """The requirement that an engine serves the rewritten operation, in the words of a refusal."""

    expected: str
    reason: str = "the rest is done by those engines, and each of them declines it"
    fix: str = "nothing to do: another engine serves it"
    rule: str = "rest"  # the rule's id, behind the engine's name


def _unweighed(form: Rewritten, engine: Engine, cost: Cost) -> Cost:
    return cost


def with_passes(part: str) -> Callable[[Task, Rewritten, Cost], Cost]:
    """The cost of the rewritten operation with its passes, as launches that copy. ``part``: their name in a cost."""

    def cost(task: Task, form: Rewritten, computed: Cost) -> Cost:
        traffic = sum([one.bytes for one in form.passes], 0.0)
        return with_launches(computed, task.device, part, traffic, len(form.passes))

    return cost


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rewrite:
    """One row. Its engine has the name ``cuda_NAME``."""

    id: int  # of the engine; never reused
    name: str
    summary: str
    why: str  # it applies, as ``explain`` says it
    match: tuple[Constraint, ...]  # requirements of a task
    rewrite: Callable[[FusedOp], tuple[Rewritten, ...]]  # of an operation that matches; empty where no form is known
    engines: tuple[Engine, ...]  # that may compute the rewritten operation, the first of equally fast ones
    remainder: Remainder
    cost: Callable[[Task, Rewritten, Cost], Cost]  # of all launches, from that of the chosen engine
    weighed: Callable[[Rewritten, Engine, Cost], Cost] = _unweighed  # the prediction by which an engine is chosen
    least: Callable[[Task], float] = lambda task: 0.0  # seconds that no prediction is below
    notes: dict[str, Any] = field(default_factory=dict)  # numerical notes and errors, those of its engines
    layout: LayoutType = LayoutType.PREFERRED_NHWC

    @property
    def engine_name(self) -> str:
        return f"cuda_{self.name}"
