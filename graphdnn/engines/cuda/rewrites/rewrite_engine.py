"""The engine of a rewrite: match, rewrite, check, then the fastest of the engines that serve the rewritten operation.

Only this module evaluates engines on a rewritten operation, and only this module caches the results.
"""

from __future__ import annotations

from dataclasses import replace

from graphdnn.checks import Equals
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.rewrites.result_check import faults
from graphdnn.engines.cuda.rewrites.rewrite import Rewrite, Rewritten
from graphdnn.engines.engine import Cost, Engine, Task, need
from graphdnn.engines.kind_cache import KindCache
from graphdnn.engines.memoization import memoize_for_task
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec


class Delegation:
    """An operation that matches a rewrite: its forms, their faults, and the engines that serve them on a device."""

    __slots__ = ("_fastest", "_kinds", "_row", "_serving", "_task", "faults", "forms")

    def __init__(self, row: Rewrite, task: Task, kinds: KindCache) -> None:
        self._row, self._task, self._kinds = row, task, kinds
        self.forms = row.rewrite(task.op)
        self.faults = tuple([fault for form in self.forms for fault in faults(task.op, form)])
        self._serving: tuple[tuple[Rewritten, Task, Engine], ...] | None = None
        self._fastest: tuple[Rewritten, Task, Engine, Cost] | None = None

    @property
    def serving(self) -> tuple[tuple[Rewritten, Task, Engine], ...]:
        """Each form with each engine that serves it; empty if all engines decline all forms."""
        if self._serving is None:
            tasks = [(form, Task(form.op, self._task.device)) for form in self.forms]
            self._serving = tuple(
                [
                    (form, task, engine)
                    for form, task in tasks
                    for engine in self._kinds.serving(task)
                    if engine not in form.excluded
                ]
            )
        return self._serving

    @property
    def fastest(self) -> tuple[Rewritten, Task, Engine, Cost]:
        """The form and the engine with the least predicted time, the first of equal ones. One engine serves or more."""
        if self._fastest is None:
            compared = self._row.compared
            costs = [
                (form, task, engine, compared(form, engine, engine.cost(task, engine.defaults())))
                for form, task, engine in self.serving
            ]
            self._fastest = min(costs, key=lambda one: one[3].seconds)
        return self._fastest

    def kernel(self) -> DeviceKernel:
        """The kernel of the rewritten operation, by the fastest engine."""
        _, task, engine, _ = self.fastest
        kernel = engine.compile(task, engine.defaults())
        assert isinstance(kernel, DeviceKernel)
        return kernel


def _allocate(steps: LaunchSequence, scratch: TensorSpec) -> None:
    """Allocates a scratch tensor in the workspace."""
    steps.workspace_offsets[scratch.uid] = steps.allocate(scratch.bytes)


class _RewriteEngine:
    """The functions of the engine of one row."""

    def __init__(self, row: Rewrite) -> None:
        self._row = row
        kinds = KindCache(row.engines)

        @memoize_for_task
        def delegation(task: Task) -> Delegation | None:
            return Delegation(row, task, kinds) if all(condition.holds(task) for condition in row.match) else None

        self.delegation = delegation

    def matched(self, task: Task) -> Delegation:
        """The delegation of an operation that matches."""
        delegation = self.delegation(task)
        assert delegation is not None, "the operation matches"
        return delegation

    def is_matched(self, task: Task) -> bool:
        return self.delegation(task) is not None

    def is_declined(self, task: Task) -> bool:
        """Whether the operation matches, and no engine serves a rewritten form."""
        delegation = self.delegation(task)
        return delegation is not None and not delegation.faults and not delegation.serving

    def needs(self) -> tuple[Constraint, ...]:
        """The match of the row, a correct rewrite, and an engine that serves the rewritten operation."""
        row = self._row
        correct = need(
            "engine.rewrite",
            "rewrite",
            lambda task: self.matched(task).faults,
            Equals(()),
            reason="a rewrite may change the axes of tensors, but not the elements that are read and written",
            fix="report the rewrite as a fault of graphdnn; other engines serve the operation",
            when=self.is_matched,
        )
        served = need(
            f"{row.engine_name}.{row.refusal.rule}",
            "operation",
            lambda task: task.op.name,
            Equals(row.refusal.expected),
            reason=row.refusal.reason,
            fix=row.refusal.fix,
            when=self.is_declined,
        )
        return (*row.match, correct, served)

    def cost(self, task: Task) -> Cost:
        """The cost of all launches."""
        form, _, _, delegate_cost = self.matched(task).fastest
        return self._row.cost(task, form, delegate_cost)

    def generate(self, op: FusedOp, device: DeviceSpec) -> DeviceKernel:
        """The passes before, the kernel of the rewritten operation, and the passes after."""
        delegation = self.matched(Task(op, device))
        form = delegation.fastest[0]
        # The exit belongs to the rewritten operation, whose kernel contains it.
        steps = LaunchSequence(op if op.exit is None else replace(op, exit=None), device)
        for one in form.before:
            _allocate(steps, one.scratch)
            one.add(steps)
        for one in form.after:
            _allocate(steps, one.scratch)
            if one.is_blended and one.result is not None:
                steps.copy_into(one.result, one.scratch)
        kernel = delegation.kernel()
        # The text of a kernel numbers the operations. A rewritten operation with fewer operations has other numbers.
        is_shorter = len(form.op.operations) != len(op.operations)
        steps.include(kernel, form.op if is_shorter else None)
        for one in form.after:
            one.add(steps)
        return steps.kernel(kernel.name)

    def step(self, task: Task) -> RewriteStep:
        """The rewrite in ``explain``."""
        row, delegation = self._row, self.matched(task)
        form, _, engine, _ = delegation.fastest
        before, after = (tuple(one.summary for one in passes) for passes in (form.before, form.after))
        return RewriteStep(row.name, row.why, form.op, engine.name, delegation.kernel().name, before, after)


def rewrite_engine(row: Rewrite) -> Engine:
    """The engine that heuristics rank for a row of the table."""
    functions = _RewriteEngine(row)
    return cuda_engine(
        id=row.id,
        name=row.engine_name,
        summary=row.summary,
        needs=functions.needs(),
        cost=lambda task, knobs: functions.cost(task),
        least=row.least,
        generate=lambda op, device, knobs: functions.generate(op, device),
        rewritten=functions.step,
        layout=row.layout,
        **row.notes,
    )
