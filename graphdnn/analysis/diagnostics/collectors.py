"""Where entries come from: the fusion pass, a ranking, a plan, an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from graphdnn.analysis.diagnostics.diagnostic import Diagnostic, Subject
from graphdnn.analysis.diagnostics.diagnostic_list import DiagnosticList
from graphdnn.analysis.diagnostics.query_validation import check_places
from graphdnn.engines import Engine
from graphdnn.enums import HeurMode, Status
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.fusion import FusedGraph, FusedOp, UnfusedEdge
from graphdnn.heuristics import Choice, Ranking
from graphdnn.operations import Operation
from graphdnn.plan import ExecutionPlan
from graphdnn.spec import Attempted
from graphdnn.tensors import TensorSpec


def of_plan(
    plan: ExecutionPlan,
    engine: str | int | None = None,
    kind: str | None = None,
    rule: str | None = None,
    operation: str | int | None = None,
    uid: int | None = None,
) -> DiagnosticList:
    """What was refused on the way to a plan, filtered as by ``DiagnosticList.only``."""
    config = plan.config
    check_places(config.fused, config.device.kind, engine, operation, uid)
    mode = HeurMode.A if config.mode is None else config.mode
    ranking = Ranking(config.fused, config.device, mode, config.filters)
    return of_ranking(ranking).only(engine, kind, rule, operation, uid)


def of_ranking(ranking: Ranking) -> DiagnosticList:
    """Every edge left unfused, every chain, engine and knob setting that was declined."""
    return DiagnosticList(chain(fusion_entries(ranking.fused), engine_entries(ranking), _knob_entries(ranking)))


def of_fused(fused: FusedGraph) -> DiagnosticList:
    """Every edge left unfused, and every chain that was not taken as one kernel."""
    return DiagnosticList(fusion_entries(fused))


def of_error(error: GraphdnnError) -> DiagnosticList:
    """What an error says, and all that is known about what it was about."""
    rankings = error.subject if isinstance(error.subject, tuple) else (error.subject,)
    if not rankings or not all(isinstance(ranking, Ranking) for ranking in rankings):
        return DiagnosticList(_value_entry(rejection, error.subject) for rejection in error.rejections)
    entries = [entry for ranking in rankings for entry in of_ranking(ranking)]
    told = {entry.rule for entry in entries}  # what was deselected by name, no ranking knows
    return DiagnosticList((*entries, *(_value_entry(r, None) for r in error.rejections if r.rule not in told)))


# The fusion pass.


def fusion_entries(fused: FusedGraph) -> Iterator[Diagnostic]:
    kernel_of = {id(op): kernel.index for kernel in fused for op in kernel.operations}
    yield from (_stop_entry(stop, "edge", fused, kernel_of) for stop in fused.stopped_by)
    yield from (_stop_entry(stop, "pattern", fused, kernel_of) for stop in fused.declined_patterns)


def _stop_entry(stop: UnfusedEdge, kind: str, fused: FusedGraph, kernel_of: Mapping[int, int]) -> Diagnostic:
    ends = tuple(fused.graph.operations[index] for index in stop.edge)
    subject = Subject(
        text=stop.subject,
        fused=kernel_of[id(ends[1])],
        operations=_labels(ends),
        uids=(stop.tensor.uid,),
        origins=_origins(ends),
    )
    return Diagnostic(
        stop.rule, kind, subject, stop.attribute, stop.actual, stop.required, stop.reason, stop.fix, Status.SUCCESS
    )


# Engines, filters and knobs.


def engine_entries(ranking: Ranking) -> Iterator[Diagnostic]:
    about: dict[int, Subject] = {}
    for declined in ranking.declined:
        op = declined.operation
        if op.index not in about:  # many engines decline one operation
            about[op.index] = _subject_of(op)
        subject = _with_engine(about[op.index], declined.engine)
        foreign = f"{declined.engine.name}.operation"
        for rejection in declined.rejections:
            kind = "pattern" if rejection.rule == foreign else _kind_of(rejection.rule, "engine")
            yield _rejection_entry(rejection, kind, subject)


def _knob_entries(ranking: Ranking) -> Iterator[Diagnostic]:
    """Knob values that a filter excluded, of engines that serve the operation with others."""
    if ranking.filters.workspace_limit is None:
        return  # the other filters look at the engine alone
    declined = {(d.operation.index, d.engine.id) for d in ranking.declined}
    for op in ranking.fused:
        for choice, rejection in ranking.excluded_knobs(op):
            if (op.index, choice.engine.id) not in declined:
                subject = _with_engine(_subject_of(op), choice.engine, _knobs_of(choice))
                yield _rejection_entry(rejection, "knob", subject)


def _knobs_of(choice: Choice) -> str:
    return ", ".join(f"{kind.name}={value}" for kind, value in sorted(choice.knobs.items()))


def _subject_of(op: FusedOp) -> Subject:
    tensors: tuple[TensorSpec, ...] = (*op.inputs, *op.outputs, *op.internal)
    uids = tuple(dict.fromkeys(t.uid for t in tensors))
    return Subject(f"[{op.index}] {op.name}", op.index, _labels(op.operations), uids, _origins(op.operations))


def _with_engine(about: Subject, engine: Engine, knobs: str = "") -> Subject:
    text = f"{engine.name} for {about.text}" + (f" with {knobs}" if knobs else "")
    return Subject(text, about.fused, about.operations, about.uids, about.origins, engine.name, engine.id)


# Errors.


def _value_entry(rejection: Rejection, subject: object) -> Diagnostic:
    return _rejection_entry(rejection, _kind_of(rejection.rule, "value"), _subject_of_value(rejection, subject))


def _subject_of_value(rejection: Rejection, subject: object) -> Subject:
    if isinstance(subject, Attempted):
        return _attempted(rejection.where, subject)
    if isinstance(subject, tuple) and all(isinstance(op, Operation) for op in subject):
        named = [op for op in subject if rejection.attribute.startswith(f"{op.label()}.")]
        found = tuple(named or subject)
        uids = {t.uid: t for op in found for t in op.tensors().values()}
        mentioned = [uid for uid, t in uids.items() if t.label() in (rejection.attribute, rejection.shown_value)]
        if mentioned:
            found = tuple(op for op in found if any(t.uid in mentioned for t in op.tensors().values()))
        return Subject(rejection.where, None, _labels(found), tuple(mentioned or uids), _origins(found))
    return Subject(rejection.where)


def _attempted(where: str, attempted: Attempted) -> Subject:
    fields = attempted.fields
    tensors = [t for value in fields.values() for t in (value if isinstance(value, tuple) else (value,))]
    uids = [t.uid for t in tensors if isinstance(t, TensorSpec)]
    if issubclass(attempted.cls, TensorSpec) and isinstance(fields.get("uid"), int):
        uids.append(fields["uid"])
    if not issubclass(attempted.cls, Operation):
        return Subject(where, uids=tuple(uids), origins=_origin_in(where))
    name = fields.get("name")
    label = f"{attempted.cls.tag} '{name}'" if name else attempted.cls.tag
    origin = str(fields.get("origin") or "")
    return Subject(where, None, (label,), tuple(uids), (origin,))


def _origin_in(where: str) -> tuple[str, ...]:
    """Settings have no origin of their own; the builder adds the line of the call to what errors name."""
    _, _, rest = where.rpartition(" (")
    return (rest[:-1],) if rest.endswith(")") and ".py:" in rest else ()


def _kind_of(rule: str, usual: str) -> str:
    family = rule.split(".", maxsplit=1)[0]
    if family == "filter" or rule == "builder.deselected":
        return "filter"
    return "knob" if family == "knob" else usual


def _rejection_entry(r: Rejection, kind: str, subject: Subject) -> Diagnostic:
    return Diagnostic(r.rule, kind, subject, r.attribute, r.shown_value, r.expected, r.reason, r.fix, r.status)


def _labels(operations: Iterable[Operation]) -> tuple[str, ...]:
    return tuple(op.label() for op in operations)


def _origins(operations: Iterable[Operation]) -> tuple[str, ...]:
    return tuple(op.origin for op in operations)
