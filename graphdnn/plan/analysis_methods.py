"""What a plan is asked about itself, answered by the packages that come after it in the flow.

A plan decides and runs; what explains, checks or compares it is built on top of it. So that one can ask the plan
itself, each question here calls a hook, which the later package answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdnn.hooks import call_hook


class AnalysisMethods:
    """The methods of ``ExecutionPlan`` that are answered further down: one line each."""

    __slots__ = ()

    def refusals(
        self,
        engine: str | int | None = None,
        kind: str | None = None,
        rule: str | None = None,
        operation: str | int | None = None,
        uid: int | None = None,
    ) -> Any:
        """Every edge left unfused, every engine, chain and knob declined, as a ``Ledger``; arguments select."""
        return call_hook("plan.refusals", self, engine, kind, rule, operation, uid)

    def repairs(self) -> Any:
        """The smallest edits with which the graph fuses further or is served faster, tried, as ``Repairs``."""
        return call_hook("plan.repairs", self)

    def cuts(self, *, measure: bool = False, margin: float | None = None) -> Any:
        """Where other kernels could take over, and whether that would be faster, as ``Cuts``."""
        return call_hook("plan.cuts", self, measure=measure, margin=margin)

    @property
    def kernels(self) -> Any:
        """A ``KernelView`` of each, in order: operations, text, launches, registers, occupancy, roofline."""
        return call_hook("plan.kernels", self)

    def where(self, subject: int | str) -> Any:
        """``Place``s where a tensor (uid, name) is written and read, or an operation (label) computed: the lines."""
        return call_hook("plan.where", self, subject)

    def with_source(self, index: int, source: str, name: str | None = None) -> Any:
        """A plan with ``source`` in place of a kernel's text; ``name`` says which, where the kernel has several."""
        return call_hook("plan.with_source", self, index, source, name)

    def trace(self, bindings: Mapping[int, Any]) -> Any:
        """``Trace``: {uid: array} of every value inside the kernels, and where it first differs from the oracle."""
        return call_hook("plan.trace", self, bindings)

    def certificate(
        self, bindings: Mapping[int, Any] | None = None, ranges: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """``Certificate``: error bounds of the outputs, for data or ranges, or of each operation for any data."""
        return call_hook("plan.certificate", self, bindings, ranges)
