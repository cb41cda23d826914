"""search: which edits would be accepted, tried one by one and in pairs; nothing is suggested that was not checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from graphdnn.analysis.diagnostics import Diagnostic, DiagnosticList, of_ranking
from graphdnn.analysis.repairs.draft_diff import changes
from graphdnn.analysis.repairs.draft_validation import Assembler, Assembly, Problem
from graphdnn.analysis.repairs.edit import Case, Edit
from graphdnn.analysis.repairs.edit_table import EDITS
from graphdnn.analysis.repairs.graph_draft import Draft
from graphdnn.analysis.repairs.repair import Repair, Repairs
from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import HeurMode
from graphdnn.errors import NotSupported
from graphdnn.fusion import NO_LIMITS, FusionLimits
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Filters, Ranking
from graphdnn.pipeline import rank

MOST = 8  # suggestions
_PROBLEMS = 4  # that proposals are asked for; edits that mend one of several are tried in pairs
_FIRST_EDITS = 24  # that a second edit is looked for after
_FASTER = 0.98  # of the predicted seconds before, for an edit that only makes things faster
_TARGETS = 40  # entries of the ledger that proposals are asked for
_PROPOSALS = 400_000  # tensors and operations that are copied for the proposals of one row for one problem
_ASSEMBLED = 100_000  # operations that graphs are made of, over all candidates
_PAIRED = 100  # operations of a draft in which two mistakes at once are looked for
_RANKED = 6000  # operations that are fused and ranked, over all candidates: few candidates of a large graph


@dataclass(frozen=True, eq=False)
class Target:
    """Where a repaired graph is to run, and under which filters."""

    device: DeviceSpec
    mode: HeurMode
    filters: Filters
    limits: FusionLimits = NO_LIMITS  # of the fusion

    def rank(self, graph: OperationGraph) -> Ranking:
        return rank(graph, self.device, self.mode, self.filters, self.limits)


@dataclass(frozen=True, eq=False)
class Ranked:
    """A legal graph and what becomes of it."""

    graph: OperationGraph
    ranking: Ranking

    @cached_property
    def seconds(self) -> float | None:
        """Predicted for the best configuration; None where no engine serves the graph."""
        try:
            return self.ranking.best.predicted_seconds
        except NotSupported:
            return None

    @property
    def kernels(self) -> int:
        return len(self.ranking.fused)

    @cached_property
    def refusals(self) -> DiagnosticList:
        return of_ranking(self.ranking)


def repairs_of(draft: Draft, target: Target) -> Repairs:
    """What would make a draft legal; of a legal one, what would make it fuse further or run faster."""
    assembler = Assembler()
    assembly = assembler.assemble(draft)
    if assembly.graph is None:
        return Repairs(_legal(draft, assembly, assembler, target), draft, target.device, assembly.problems)
    return Repairs(_faster(draft, assembly, assembler, target), draft, target.device, ())


# A draft that is no graph.


def _legal(draft: Draft, assembly: Assembly, assembler: Assembler, target: Target) -> list[Repair]:
    found = [(edit, made) for edit, made in _tried(draft, assembly, assembler) if made.graph is not None]
    if not found and len(draft.operations) <= _PAIRED:
        found = list(_pairs(draft, assembly, assembler))
    found.sort(key=lambda each: each[0].weight)
    before = tuple(problem.rejection for problem in assembly.problems)
    repairs = []
    for edit, made in _distinct(draft, found):
        assert made.graph is not None
        after = Ranked(made.graph, target.rank(made.graph))
        repairs.append(Repair.of(edit, draft, made.graph, tuple(r.rule for r in before), None, after.seconds))
        if len(repairs) == MOST:
            break
    return repairs


def _tried(draft: Draft, assembly: Assembly, assembler: Assembler) -> Iterator[tuple[Edit, Assembly]]:
    """Every proposal for the first problems, with what became of it."""
    seen = set()
    size = max(1, len(draft.operations))
    most = max(50, _PROPOSALS // (len(draft.tensors) + size))
    budget = max(12, _ASSEMBLED // size)
    for problem in _first_of_each(assembly.problems):
        case = Case(draft, assembly, problem)
        for row in EDITS:
            if not row.is_for(case):
                continue
            for edit in islice(row.propose(case), most):
                known = changes(draft, edit.draft)
                if known not in seen and budget:
                    seen.add(known)
                    if _mends_its_operation(edit.draft, problem, assembly, assembler):
                        budget -= 1
                        yield edit, assembler.assemble(edit.draft)


def _first_of_each(problems: Sequence[Problem]) -> list[Problem]:
    """The first problem of each rule and place."""
    by_rule = {(p.rule, p.tensor, p.operation): p for p in problems}
    return list(by_rule.values())[:_PROBLEMS]


def _mends_its_operation(draft: Draft, problem: Problem, assembly: Assembly, assembler: Assembler) -> bool:
    """A quick look at the operation alone: most proposals end here."""
    if problem.operation is None or problem.operation >= len(draft.operations):
        return True
    tensors = dict(assembly.tensors)
    for key in draft.all_ports(problem.operation).values():
        made = assembler.tensor(draft, key)
        if isinstance(made, tuple):
            return False
        tensors[key] = made
    made_of = assembler.operation(draft, problem.operation, tensors)
    return not isinstance(made_of, tuple) or all(p.rule != problem.rule for p in made_of)


def _pairs(draft: Draft, assembly: Assembly, assembler: Assembler) -> Iterator[tuple[Edit, Assembly]]:
    """Two edits, where no single one is enough: first one that leaves fewer or other problems."""
    old = {(p.rule, p.tensor, p.operation) for p in assembly.problems}
    firsts = [(edit, made) for edit, made in _tried(draft, assembly, assembler)]
    better = [
        (edit, made) for edit, made in firsts if not old <= {(p.rule, p.tensor, p.operation) for p in made.problems}
    ]
    better.sort(key=lambda each: (len(each[1].problems), each[0].weight))
    for first, made in better[:_FIRST_EDITS]:
        for second, done in _tried(first.draft, made, assembler):
            if done.graph is not None:
                words = f"{first.words}; {second.words}"
                yield Edit(f"{first.row}+{second.row}", words, second.draft, first.weight + second.weight), done


def _distinct(draft: Draft, found: Sequence[tuple[Edit, Assembly]]) -> Iterator[tuple[Edit, Assembly]]:
    seen = set()
    for edit, made in found:
        known = changes(draft, edit.draft)
        if known not in seen:
            seen.add(known)
            yield edit, made


# A legal graph.


def _faster(draft: Draft, assembly: Assembly, assembler: Assembler, target: Target) -> list[Repair]:
    assert assembly.graph is not None
    before = Ranked(assembly.graph, target.rank(assembly.graph))
    found: list[Repair] = []
    seen: set[tuple[str, ...]] = {()}
    budget = max(12, _RANKED // len(draft.operations))
    # The whole graph last, after what is smaller; first where not everything can be tried.
    asked = [*_worth_mending(before.refusals), None]
    for entry in asked if budget > _TARGETS else asked[::-1]:
        case = Case(draft, assembly, None, entry)
        for row in EDITS:
            if not row.is_for(case):
                continue
            for edit in islice(row.propose(case), max(2, budget // 12)):
                known = changes(draft, edit.draft)
                if known in seen or budget == 0:
                    continue
                seen.add(known)
                budget -= 1
                repair = _if_better(edit, draft, before, assembler, target)
                if repair is not None:
                    found.append(repair)
    return _worth_their_size(sorted(found, key=_small_first))[:MOST]


def _small_first(repair: Repair) -> tuple[int, bool, float]:
    """Then what rounds as before, then what gains most."""
    return repair.size, repair.edit.startswith("types."), repair.seconds or 0.0


def _worth_their_size(found: Sequence[Repair]) -> list[Repair]:
    """A larger one only where it gains more than the smaller ones."""
    kept: list[Repair] = []
    for repair in found:
        smaller = [other.seconds or 0.0 for other in kept if other.size < repair.size]
        if (repair.seconds or 0.0) < _FASTER * min(smaller, default=float("inf")):
            kept.append(repair)
    return kept


def _worth_mending(refusals: DiagnosticList) -> list[Diagnostic]:
    """Edges, and engines of the right kind of operation; each rule of an operation once."""
    found: dict[object, Diagnostic] = {}
    for entry in refusals:
        if entry.kind in ("edge", "engine") or entry.rule.startswith("fuse."):
            suffix = entry.rule if entry.kind != "engine" else entry.rule.split(".", 1)[1]
            found.setdefault((suffix, entry.subject.fused, entry.subject.uids), entry)
    return list(found.values())[:_TARGETS]


def _if_better(edit: Edit, draft: Draft, before: Ranked, assembler: Assembler, target: Target) -> Repair | None:
    """The repair, where the edited graph is legal, mends an entry, and is predicted to be faster."""
    made = assembler.assemble(edit.draft)
    if made.graph is None:
        return None
    after = Ranked(made.graph, target.rank(made.graph))
    if after.seconds is None or (before.seconds is not None and after.seconds > _FASTER * before.seconds):
        return None
    rules = _mended(before, after)
    if not rules and not edit.row.startswith(("layout.", "channels.")):
        return (
            None  # order in memory and zeros change nothing that is computed: they may be suggested for the time alone
        )
    return Repair.of(edit, draft, made.graph, rules, before.seconds, after.seconds)


def _mended(before: Ranked, after: Ranked) -> tuple[str, ...]:
    """Rules of edges that are fused now, and of engines that serve an operation which they declined."""
    stopped = {_edge(entry) for entry in after.refusals if not entry.subject.engine}
    edges = [e.rule for e in before.refusals if not e.subject.engine and _edge(e) not in stopped]
    if after.kernels < before.kernels and edges:
        return tuple(edges)
    declined = {(entry.subject.operations, entry.subject.engine) for entry in after.refusals}
    kernels = {tuple(op.label() for op in kernel.operations) for kernel in after.ranking.fused}
    return tuple(
        entry.rule
        for entry in before.refusals.only(kind="engine")
        if entry.subject.operations in kernels and (entry.subject.operations, entry.subject.engine) not in declined
    )


def _edge(entry: Diagnostic) -> object:
    return entry.kind, entry.subject.operations, entry.subject.uids
