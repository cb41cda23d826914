"""The engine of a rewrite: match, rewrite, check, then the fastest of the engines that serve the rewritten operation.

This is the only place where a rewritten operation is given to engines, and where their answers are remembered.
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
from graphdnn.engines.engine import Cost, Engine, Knobs, Task, need
from graphdnn.engines.kind_cache import KindCache
from graphdnn.engines.memoization import memoize_for_task
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec


class Delegation:
    """An operation that a rewrite matches: its forms, their faults, and the engines that serve them on a device."""

    __slots__ = ("_fastest", "_kinds", "_row", "_serving", "_task", "faults", "forms")

    def __init__(self, row: Rewrite, task: Task, kinds: KindCache) -> None:
        self._row, self._task, self._kinds = row, task, kinds
        self.forms = row.rewrite(task.op)
        self.faults = tuple([fault for form in self.forms for fault in faults(task.op, form)])
        self._serving: tuple[tuple[Rewritten, Task, Engine], ...] | None = None
        self._fastest: tuple[Rewritten, Task, Engine, Cost] | None = None

    @property
    def serving(self) -> tuple[tuple[Rewritten, Task, Engine], ...]:
        """Each form with each engine that serves it; empty where all of them decline."""
        if self._serving is None:
            tasks = [(form, Task(form.op, self._task.device)) for form in self.forms]
            self._serving = tuple(
                [
                    (form, task, engine)
                    for form, task in tasks
                    for engine in self._kinds.serving(task)
                    if engine not in form.without
                ]
            )
        return self._serving

    @property
    def fastest(self) -> tuple[Rewritten, Task, Engine, Cost]:
        """The form and the engine with the least predicted time, the first of equal ones. At least one serves."""
        if self._fastest is None:
            weighed = self._row.weighed
            costs = [
                (form, task, engine, weighed(form, engine, engine.cost(task, engine.defaults())))
                for form, task, engine in self.serving
            ]
            self._fastest = min(costs, key=lambda one: one[3].seconds)
        return self._fastest

    def kernel(self) -> DeviceKernel:
        _, task, engine, _ = self.fastest
        kernel = engine.compile(task, engine.defaults())
        assert isinstance(kernel, DeviceKernel)
        return kernel


def _place(steps: LaunchSequence, scratch: TensorSpec) -> None:
    """Give a scratch tensor its place in the workspace."""
    steps.workspace_offsets[scratch.uid] = steps.allocate(scratch.bytes)


def rewrite_engine(row: Rewrite) -> Engine:
    """What heuristics rank for a row of the table."""
    kinds = KindCache(row.engines)

    @memoize_for_task
    def delegation(task: Task) -> Delegation | None:
        """None where the operation does not match."""
        return Delegation(row, task, kinds) if all(condition.holds(task) for condition in row.match) else None

    def found(task: Task) -> Delegation:
        made = delegation(task)
        assert made is not None, "an operation that matches"
        return made

    def is_refused(task: Task) -> bool:
        """It matches, and no engine serves the result."""
        made = delegation(task)
        return made is not None and not made.faults and not made.serving

    def cost(task: Task, knobs: Knobs) -> Cost:
        form, _, _, computed = found(task).fastest
        return row.cost(task, form, computed)

    def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
        made = found(Task(op, device))
        form = made.fastest[0]
        # The exit belongs to the rewritten operation, whose kernel has it.
        steps = LaunchSequence(op if op.exit is None else replace(op, exit=None), device)
        for one in form.before:
            _place(steps, one.scratch)
            one.add(steps)
        for one in form.after:
            _place(steps, one.scratch)
            if one.is_blended and one.result is not None:
                steps.copy_into(one.result, one.scratch)
        kernel = made.kernel()
        is_shorter = len(form.op.operations) != len(op.operations)  # then its text numbers other operations
        steps.include(kernel, form.op if is_shorter else None)
        for one in form.after:
            one.add(steps)
        return steps.kernel(kernel.name)

    def step(task: Task) -> RewriteStep:
        made = found(task)
        form, _, engine, _ = made.fastest
        before, after = (tuple(one.summary for one in passes) for passes in (form.before, form.after))
        return RewriteStep(row.name, row.why, form.op, engine.name, made.kernel().name, before, after)

    name = row.engine_name
    return cuda_engine(
        id=row.id,
        name=name,
        summary=row.summary,
        needs=(
            *row.match,
            need(
                "engine.rewrite",
                "rewrite",
                lambda task: found(task).faults,
                Equals(()),
                reason="a rewrite may change how tensors are seen, and neither what is read nor what is written",
                fix="report the rewrite as a fault of graphdnn; other engines serve the operation",
                when=lambda task: delegation(task) is not None,
            ),
            need(
                f"{name}.{row.remainder.rule}",
                "operation",
                lambda task: task.op.name,
                Equals(row.remainder.expected),
                reason=row.remainder.reason,
                fix=row.remainder.fix,
                when=is_refused,
            ),
        ),
        cost=cost,
        least=row.least,
        generate=generate,
        rewritten=step,
        layout=row.layout,
        **row.notes,
    )
