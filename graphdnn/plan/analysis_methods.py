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
        """Every edge that was not fused, and every engine, pattern and knob that was refused. The arguments select
        among them.

        Args:
            engine: The name or the id of an engine.
            kind: A kind of refusal.
            rule: The id of a rule, or the part of an id before a dot.
            operation: The index of a fused operation, or the label or the name of an operation.
            uid: The uid of a tensor.

        Returns:
            A ``DiagnosticList``.

        Raises:
            BadParam: There is no such engine, kind, rule, operation or uid.
        """
        return call_hook("plan.refusals", self, engine, kind, rule, operation, uid)

    def repairs(self) -> Any:
        """The smallest edits that fuse the graph further or make it faster, as ``Repairs``. Each edit was tried."""
        return call_hook("plan.repairs", self)

    def cuts(self, *, measure: bool = False, margin: float | None = None) -> Any:
        """Every place where the graph could be split into other kernels, and whether the split is faster than the
        whole.

        Args:
            measure: True executes the whole graph and all parts. That needs the device.
            margin: The share of the time below which a difference counts as none. None takes the default.

        Returns:
            ``Cuts`` with one entry for each place.

        Raises:
            NotSupported: The device is not present and ``measure`` is set.
        """
        return call_hook("plan.cuts", self, measure=measure, margin=margin)

    @property
    def kernels(self) -> Any:
        """A ``KernelView`` of each kernel, in order of execution."""
        return call_hook("plan.kernels", self)

    def where(self, subject: int | str) -> Any:
        """The kernels and the lines of their texts that write or read a tensor, or that compute an operation.

        Args:
            subject: The uid or the name of a tensor, or the label of an operation.

        Returns:
            A ``Place`` for each kernel that takes part.

        Raises:
            BadParam: The plan has no such tensor or operation.
        """
        return call_hook("plan.where", self, subject)

    def with_source(self, index: int, source: str, name: str | None = None) -> Any:
        """A plan with another text in place of a kernel's text.

        Args:
            index: The index of the kernel.
            source: The other text.
            name: The name of the text, if the kernel has several.

        Returns:
            The plan.

        Raises:
            BadParam: There is no such kernel or text.
        """
        return call_hook("plan.with_source", self, index, source, name)

    def trace(self, bindings: Mapping[int, Any]) -> Any:
        """Every value inside the kernels for the given arrays, and the first tensor that differs from the oracle.

        Args:
            bindings: ``{uid: array}`` of the inputs.

        Returns:
            A ``Trace``.

        Raises:
            BadParam: An array does not fit.
            NotSupported: The device of the plan is not present.
        """
        return call_hook("plan.trace", self, bindings)

    def certificate(
        self, bindings: Mapping[int, Any] | None = None, ranges: Mapping[int, tuple[float, float]] | None = None
    ) -> Any:
        """Error bounds of the outputs, for given data, for all data in given ranges, or of each operation for any
        data.

        Args:
            bindings: ``{uid: array}``; the bounds then hold for this data.
            ranges: ``{uid: (low, high)}``; the bounds then hold for all data in the ranges.

        Returns:
            A ``Certificate``.

        Raises:
            BadParam: A range or an array is invalid.
        """
        return call_hook("plan.certificate", self, bindings, ranges)
