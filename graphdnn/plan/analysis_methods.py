"""What a plan is asked about itself, answered by the packages that come after it in the flow.

A plan decides and runs; what explains, checks or compares it is built on top of it. So that one can ask the plan
itself, each question here names the module that answers, loaded when it is asked for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


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
        return self._ask("diagnostics", "of_plan", engine, kind, rule, operation, uid)

    def repairs(self) -> Any:
        """The smallest edits with which the graph fuses further or is served faster, tried, as ``Repairs``."""
        return self._ask("repairs", "of_plan")

    def cuts(self, *, measure: bool = False, margin: float | None = None) -> Any:
        """Where other kernels could take over, and whether that would be faster, as ``Cuts``."""
        return self._ask("cuts", "of_plan", measure=measure, margin=margin)

    def _ask(self, module: str, function: str, *arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"graphdnn.analysis.{module}"), function)(self, *arguments, **options)

    # What the plan's kernels are (graphdnn/kernels).

    @property
    def kernels(self) -> Any:
        """A ``KernelView`` of each, in order: operations, text, launches, registers, occupancy, roofline."""
        return self._ask("kernels", "of_plan")

    def where(self, subject: int | str) -> Any:
        """``Place``s where a tensor (uid, name) is written and read, or an operation (label) computed: the lines."""
        return self._ask("kernels", "where", subject)

    def with_source(self, index: int, source: str, name: str | None = None) -> Any:
        """A plan with ``source`` in place of a kernel's text; ``name`` says which, where the kernel has several."""
        return self._ask("kernels", "with_source", index, source, name)

    def trace(self, bindings: Mapping[int, Any]) -> Any:
        """``Trace``: {uid: array} of every value inside the kernels, and where it first differs from the oracle."""
        return self._ask("trace", "of_plan", bindings)

    def certificate(
        self, bindings: Mapping[int, Any] | None = None, ranges: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """``Certificate``: error bounds of the outputs, for data or ranges, or of each operation for any data."""
        return self._ask("certificate", "of_plan", bindings, ranges)
