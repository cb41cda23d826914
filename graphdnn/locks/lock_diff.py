"""What moved between two entries of one graph, in which class, and why.

| class   | what moved                                                                    |
|---------|-------------------------------------------------------------------------------|
| text    | the text of a kernel, or the words about an edge, and nothing that follows     |
| speed   | an engine, a knob, a predicted time, a workspace                               |
| numbers | the numeric class: the results' error bounds, or that the bits are stable      |
| fusion  | which operations are one kernel                                                |
| graph   | the graph itself: it computes something else, or nothing serves it any more    |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.locks.lock_file import Lock, LockedGraph, LockedKernel

CLASSES = ("text", "speed", "numbers", "fusion", "graph")

Reasons = Callable[[int, str], Sequence[str]]  # (kernel, engine) -> why it declines now; nothing when it does not


@dataclass(frozen=True, slots=True)
class LockChange:
    """One thing that differs from what was locked."""

    kind: str  # one of ``CLASSES``
    graph: str  # name of the entry
    subject: str  # "kernel 0 conv_fprop+add", "edge ...", or the graph
    what: str  # "engine cuda_a, then cuda_b"
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((f"{self.graph}: {self.kind}: {self.subject}: {self.what}", *(f"  {why}" for why in self.why)))

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the change."""
        return {
            "class": self.kind,
            "graph": self.graph,
            "subject": self.subject,
            "what": self.what,
            "why": list(self.why),
        }


def no_reasons(kernel: int, engine: str) -> Sequence[str]:
    """Where only the two files are known."""
    return ()


def compare_locks(before: Lock, after: Lock) -> list[LockChange]:
    """The changes between two lock files, graph by graph.

    Args:
        before: The earlier lock.
        after: The later lock.

    Returns:
        The changes.
    """
    found: list[LockChange] = []
    for name in sorted({graph.name for graph in (*before.graphs, *after.graphs)}):
        old, new = before.find(name), after.find(name)
        if old is None or new is None:
            found.append(LockChange("graph", name, "graph", "added" if old is None else "removed"))
        else:
            found += compare(old, new)
    return found


def compare(
    old: LockedGraph,
    new: LockedGraph,
    reasons: Reasons = no_reasons,
    why_stopped: Mapping[tuple[str, str], str] | None = None,
) -> list[LockChange]:
    """The changes between two entries.

    Args:
        old: The earlier entry.
        new: The later entry.
        reasons: Returns the reasons for a changed engine. None are given by default.
        why_stopped: The reason for each pair of an edge and a rule that is unfused now.

    Returns:
        The changes.
    """
    return [LockChange(kind, old.name, *rest) for kind, *rest in _moved(old, new, reasons, why_stopped or {})]


def _moved(old: LockedGraph, new: LockedGraph, reasons: Reasons, why_stopped: Mapping[Any, str]) -> Iterator[Any]:
    if old.device != new.device:
        yield "graph", "device", f"{old.device}, then {new.device}", ()
    if old.key != new.key:
        yield "graph", "graph", "it computes something else", (f"key {old.key[:12]}, then {new.key[:12]}",)
        return
    if old.limits != new.limits:
        yield "fusion", "limits", f"{dict(old.limits) or 'none'}, then {dict(new.limits) or 'none'}", ()
    yield from _fusion(old, new, why_stopped)
    if old.numbers != new.numbers:
        yield (
            "numbers",
            "numeric class",
            "the results have other error bounds",
            tuple(_changed(old.numbers, new.numbers)),
        )
    for i, was, now in _pairs(old.kernels, new.kernels):
        for kind, what, why in _kernel(i, was, now, reasons):
            yield kind, f"kernel {i} {now.name}", what, tuple(why)
    if old.workspace != new.workspace:
        yield "speed", "workspace", f"{old.workspace} bytes, then {new.workspace}", ()


def _fusion(old: LockedGraph, new: LockedGraph, why_stopped: Mapping[Any, str]) -> Iterator[Any]:
    sets = [[kernel.operations for kernel in entry.kernels] for entry in (old, new)]
    gone, come = (sorted(set(a.stops) - set(b.stops)) for a, b in ((old, new), (new, old)))
    reasons = (
        *(f"unfused now: {edge} [{rule}]" + _because(why_stopped.get((edge, rule))) for edge, rule in come),
        *(f"fused now, or stopped by another rule: {edge} [{rule}]" for edge, rule in gone),
    )
    if sets[0] != sets[1]:
        then, now = (" ; ".join(kernel.name for kernel in entry.kernels) for entry in (old, new))
        yield "fusion", "kernels", f"{then}, then {now}", reasons
    elif reasons:
        yield "text", "edges", "other rules keep the kernels apart", reasons


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _pairs(
    old: Sequence[LockedKernel], new: Sequence[LockedKernel]
) -> Iterator[tuple[int, LockedKernel, LockedKernel]]:
    """Kernels of the same operations, each with the next of its kind; the place is the new one's."""
    waiting: dict[tuple[str, ...], list[LockedKernel]] = {}
    for kernel in old:
        waiting.setdefault(kernel.operations, []).append(kernel)
    for i, kernel in enumerate(new):
        if waiting.get(kernel.operations):
            yield i, waiting[kernel.operations].pop(0), kernel


def _changed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    if len(old) != len(new):
        return [f"{len(old)} operations, then {len(new)}"]
    return [f"operation {i}: {a}, then {b}" for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]


def _kernel(
    place: int, old: LockedKernel, new: LockedKernel, reasons: Reasons
) -> Iterator[tuple[str, str, Sequence[str]]]:
    if old.engine != new.engine:
        what = (
            f"engine {old.engine}, then {new.engine}: predicted {_us(old.predicted_us)}, then {_us(new.predicted_us)}"
        )
        yield "speed", what, _why_engine(place, old, new, reasons)
        return
    if old.knobs != new.knobs:
        yield (
            "speed",
            "knobs of " + new.engine,
            [
                f"{name} {old.knobs.get(name, 'absent')}, then {new.knobs.get(name, 'absent')}: another default"
                for name in sorted({*old.knobs, *new.knobs})
                if old.knobs.get(name) != new.knobs.get(name)
            ],
        )
    if old.predicted_us != new.predicted_us:
        yield (
            "speed",
            f"predicted {_us(old.predicted_us)}, then {_us(new.predicted_us)}",
            ("the engine's cost model, or the device's profile, says something else",),
        )
    if old.texts != new.texts:
        changed = [name for name in {**old.texts, **new.texts} if old.texts.get(name) != new.texts.get(name)]
        yield (
            "text",
            "kernel text",
            [f"{name}: {old.texts.get(name, 'absent')}, then {new.texts.get(name, 'absent')}" for name in changed],
        )


def _why_engine(place: int, old: LockedKernel, new: LockedKernel, reasons: Reasons) -> list[str]:
    declines = reasons(place, old.engine)
    if declines:
        return [f"{old.engine} declines now: {why}" for why in declines]
    lines = []
    if old.engine in new.ranking:
        then, now = (_order(kernel.ranking, (old.engine, new.engine)) for kernel in (old, new))
        lines.append(f"the ranking's order changed: {then}; now {now}")
    else:
        lines.append(f"{old.engine} is not offered any more")
    if new.engine not in old.ranking:
        lines.append(f"{new.engine} did not serve it then")
    return lines


def _order(ranking: Mapping[str, float], engines: Sequence[str]) -> str:
    return ", ".join(f"{name} {_us(ranking[name])}" for name in engines if name in ranking)


def _us(value: float) -> str:
    return f"{value:.4g} us"
