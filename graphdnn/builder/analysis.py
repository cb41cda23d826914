"""Analysis: what a graph says of its fusion, its refusals and its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from graphdnn.builder.bindings import by_uid
from graphdnn.builder.description import UID_TWICE, with_specs
from graphdnn.builder.plan_selection import MOST_DESELECTED, PlanSelection
from graphdnn.builder.tensor import Tensor
from graphdnn.errors import GraphdnnError, NotSupported, Rejection
from graphdnn.heuristics import Ranking

if TYPE_CHECKING:
    from graphdnn.analysis.certificate import Certificate
    from graphdnn.analysis.cuts import Cuts
    from graphdnn.analysis.diagnostics import DiagnosticList
    from graphdnn.analysis.kernels import KernelView, Place
    from graphdnn.analysis.repairs import Draft, Repairs
    from graphdnn.analysis.trace import Trace


class Analysis:
    """Questions about a graph, its ranking and its plan, with tensors, uids or names as keys."""

    def __init__(self, selection: PlanSelection) -> None:
        self._selection = selection
        self._description = selection.description

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """Each kernel of the plan: operations, text, launches, registers, occupancy and share of the roofline."""
        kernels: tuple[KernelView, ...] = self._selection.plan.kernels
        return kernels

    def where(self, subject: Tensor | int | str) -> tuple[Place, ...]:
        """The kernels and the lines of their texts that write or read a tensor, or that compute an operation.

        Args:
            subject: A tensor, its uid or its name, or the label of an operation.

        Returns:
            A ``Place`` for each kernel that takes part.

        Raises:
            BadParam: The graph has no such tensor or operation.
            NotInitialized: The graph is not built.
        """
        places: tuple[Place, ...] = self._selection.plan.where(
            subject.get_uid() if isinstance(subject, Tensor) else subject
        )
        return places

    def trace(self, variant_pack: Mapping[Any, Any]) -> Trace:
        """Every value inside the kernels for the given arrays, and the first tensor that differs from the oracle.

        Args:
            variant_pack: ``{tensor, uid or name: array}`` of the inputs.

        Returns:
            The trace; ``first_difference`` is the first tensor beyond its error bound.

        Raises:
            BadParam: An array is missing, or it has the wrong type, extents or strides.
            NotSupported: The device of the plan is not present.
            NotInitialized: The graph is not built.
        """
        trace: Trace = self._selection.plan.trace(by_uid(self._description, variant_pack))
        return trace

    def certificate(
        self, variant_pack: Mapping[Any, Any] | None = None, ranges: Mapping[Any, tuple[float, float]] | None = None
    ) -> Certificate:
        """Error bounds of the outputs, for given data or for all data in given ranges.

        Args:
            variant_pack: ``{tensor, uid or name: array}``; the bounds then hold for this data.
            ranges: ``{tensor, uid or name: (low, high)}``; the bounds then hold for all data in the ranges.

        Returns:
            The certificate. Without data and ranges it states what each operation adds to the error.

        Raises:
            BadParam: A range or an array is invalid.
            NotInitialized: The graph is not built.
        """
        data = None if variant_pack is None else by_uid(self._description, variant_pack)
        certificate: Certificate = self._selection.plan.certificate(
            data, None if ranges is None else by_uid(self._description, ranges)
        )
        return certificate

    def explain(self, *, every_reason: bool = False) -> str:
        """The fused operations, the ranking and the engines that declined, as text.

        Args:
            every_reason: True lists each engine that declined with all its reasons and fixes. Otherwise engines that
                decline for the same reason share a line. :meth:`refusals` has the same reasons as objects.

        Returns:
            Several lines of text.

        Raises:
            BadParam: The graph is invalid.
        """
        return f"{self._selection.fused}\n\n{self._selection.ranking.text(every_reason=every_reason)}"

    def refusals(
        self,
        engine: str | int | None = None,
        kind: str | None = None,
        rule: str | None = None,
        operation: str | int | None = None,
        uid: int | None = None,
    ) -> DiagnosticList:
        """Every edge that was not fused, and every engine, pattern, knob and value that was refused. The arguments
        select among them.

        The method works before there is a plan. If the graph is invalid, it lists what is wrong.

        Args:
            engine: The name or the id of an engine.
            kind: A kind of refusal, see :class:`graphdnn.analysis.diagnostics.DiagnosticList`.
            rule: The id of a rule, or the part of an id before a dot.
            operation: The index of a fused operation, or the label or the name of an operation.
            uid: The uid of a tensor.

        Returns:
            The refusals that agree with every argument.

        Raises:
            BadParam: There is no such engine, kind, rule, operation or uid.
        """
        from graphdnn.analysis.diagnostics import (  # when it is asked for
            DiagnosticList,
            check_places,
            of_error,
            of_ranking,
        )

        try:
            rankings = [r for r in self._selection.rankings if isinstance(r, Ranking)] or [self._selection.ranking]
        except GraphdnnError as error:
            found = of_error(error)
        else:
            check_places(rankings[0].fused, rankings[0].device.kind, engine, operation, uid)
            found = DiagnosticList(entry for ranking in rankings for entry in of_ranking(ranking))
            found += of_error(NotSupported(self._deselected_configs(rankings)))
        return found.only(engine, kind, rule, operation, uid)

    def _deselected_configs(self, rankings: Sequence[Ranking]) -> list[Rejection]:
        """The configurations that were barred by name, as far as a list of them is shown."""
        if not self._selection.deselected:
            return []
        configs = (config for ranking in rankings for config in islice(ranking, MOST_DESELECTED))
        return [self._selection.deselection(config) for config in configs if self._selection.is_deselected(config)]

    def repairs(self) -> Repairs:
        """The smallest edits that make the graph legal, fuse it further or make it faster. Each edit was tried.

        Returns:
            The repairs, smallest first.
        """
        from graphdnn.analysis import repairs  # when it is asked for: importing it takes as long as building a plan

        try:
            ranking = self._selection.ranking
        except GraphdnnError as error:
            draft = self._draft(error)
            return (
                repairs.of_error(error, self._selection.device)
                if draft is None
                else repairs.of_draft(draft, self._selection.device)
            )
        fused = ranking.fused
        return repairs.of_graph(
            fused.graph, self._selection.device, ranking.mode, self._selection.filters, fused.limits
        )

    def cuts(self, *, measure: bool = False, margin: float | None = None) -> Cuts:
        """Every place where the graph could be split into other kernels, and whether the split is faster than the
        whole.

        Args:
            measure: True executes the whole graph and all parts. That needs the device.
            margin: The share of the time, for example 0.05, below which a difference counts as none. None takes the
                default.

        Returns:
            A ``graphdnn.analysis.cuts.Cuts`` with one entry for each place.

        Raises:
            NotSupported: No engine serves the graph, or the device is not present and ``measure`` is set.
        """
        from graphdnn.analysis.cuts import cuts_of  # few ask

        selected = self._selection
        graph = self._description.build_operation_graph()
        return cuts_of(
            graph, selected.device, measure=measure, margin=margin, filters=selected.filters,
            without=selected.deselected, limits=selected.limits,
        )  # fmt: skip

    def _draft(self, error: GraphdnnError) -> Draft | None:
        """The graph as far as it was described; None where something is still open."""
        if any(r.rule.startswith("builder.") and r.rule != UID_TWICE.id for r in error.rejections):
            return None
        from graphdnn.analysis.repairs import Draft

        self._description.number_tensors()
        draft, keys = Draft(self._description.name, {}, []), {}
        for tensor in self._description.tensors:
            keys[id(tensor)] = draft.enter(tensor.fields())
        for node in self._description.nodes:
            draft.add(node.cls, {**with_specs(node, keys), "name": node.name, "origin": node.origin})
        return draft
