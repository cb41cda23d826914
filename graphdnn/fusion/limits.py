"""Limits: what a user asks of the fusion pass beyond the rules. Kernels can be forced, forbidden and bounded.

An operation is named by the uid of a tensor that it writes, which survives files and other orders of the list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from graphdnn.checks import AtMost, Equals
from graphdnn.errors import Rejection, raise_if
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.rules import Constraint, Rule

_MOST = 4096  # entries of each kind; more would only cost time

ENTRY = Rule(
    id="limits.entry",
    expected="{expected}",
    reason="the entry names no kernels to force, forbid or bound",
    fix="name operations by uids of tensors that they write: force=[(3, 5)], forbid=[(4,), (3, 6)], bound=4",
)
_SHOWN = 12  # uids in a message
UID = Rule(
    id="limits.uid",
    expected="a tensor that an operation of the graph writes: {written}",
    reason="operations are named by what they write",
    fix="use the uid of an operation's output",
)


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """What a user asks of the fusion beyond its rules. Operations are named by uids of tensors that they write.

    Args:
        force: Groups of operations; each group has to be one kernel.
        forbid: Pairs of operations that are never in one kernel, or single tensors that always have memory.
        bound: The most operations in a kernel. None means no bound.
    """

    force: tuple[tuple[int, ...], ...] = ()
    forbid: tuple[tuple[int, ...], ...] = ()
    bound: int | None = None

    @classmethod
    def of(
        cls, force: Iterable[Iterable[int]] = (), forbid: Iterable[Iterable[int]] = (), bound: int | None = None
    ) -> FusionLimits:
        """Make limits from sequences of any kind.

        Args:
            force: Groups of uids; each group has to be one kernel.
            forbid: Pairs of uids, or single uids.
            bound: The most operations in a kernel.

        Returns:
            The limits.

        Raises:
            BadParam: An entry has the wrong form.
        """
        force, forbid = tuple(force), tuple(forbid)
        found = [
            ENTRY.reject("LIMITS", name, f"{len(entries)} entries", expected=f"at most {_MOST} entries")
            for name, entries in (("force", force), ("forbid", forbid))
            if len(entries) > _MOST
        ]
        raise_if(found)
        forced = tuple(_uids(found, "force", i, entry, (2, 10**6)) for i, entry in enumerate(force))
        forbidden = tuple(_uids(found, "forbid", i, entry, (1, 2)) for i, entry in enumerate(forbid))
        if bound is not None and (type(bound) is not int or bound < 1):
            found.append(ENTRY.reject("LIMITS", "bound", bound, expected="a count of at least 1"))
        raise_if(found)
        return cls(forced, forbidden, bound)

    def __bool__(self) -> bool:
        return bool(self.force or self.forbid or self.bound is not None)

    def __str__(self) -> str:
        parts = [f"one kernel for {named(entry)}" for entry in self.force]
        parts += [f"{named(entry)} apart" if len(entry) > 1 else f"{named(entry)} in memory" for entry in self.forbid]
        parts += [] if self.bound is None else [f"at most {self.bound} operations in a kernel"]
        return "; ".join(parts) or "none"

    def within(self, graph: OperationGraph) -> FusionLimits:
        """The entries whose operations all belong to a part of the graph.

        Args:
            graph: The part.

        Returns:
            The limits of the part.
        """

        def known(entries: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
            return tuple(entry for entry in entries if all(uid in graph.producer for uid in entry))

        return FusionLimits(known(self.force), known(self.forbid), self.bound)

    def to_json(self) -> dict[str, Any]:
        """Plain data, as plan files hold it."""
        return {"force": [list(e) for e in self.force], "forbid": [list(e) for e in self.forbid], "bound": self.bound}


def limits_from_json(data: Mapping[str, Any]) -> FusionLimits:
    """What ``to_json`` made. Raises ``BadParam`` for anything else."""
    unknown = sorted(set(data) - {"force", "forbid", "bound"})
    raise_if(ENTRY.reject("LIMITS", str(name), "given", expected="force, forbid and bound") for name in unknown)
    return FusionLimits.of(**data)


Limits = FusionLimits  # the former name
NO_LIMITS = FusionLimits()


def _uids(found: list[Rejection], name: str, place: int, entry: object, count: tuple[int, int]) -> tuple[int, ...]:
    expected = f"uids of {count[0]} or {'more' if count[1] > 2 else count[1]} tensors"
    uids = tuple(entry) if isinstance(entry, Iterable) and not isinstance(entry, (str, bytes)) else ()
    if len(set(uids)) != len(uids) or not count[0] <= len(uids) <= count[1] or any(type(u) is not int for u in uids):
        found.append(ENTRY.reject("LIMITS", f"{name}[{place}]", repr(entry), expected=expected))
    return uids


def named(uids: Sequence[int]) -> str:
    """``uid 3 and uid 5``."""
    return " and ".join(f"uid {uid}" for uid in uids)


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """Limits by the indices of a graph's operations."""

    forced: Mapping[int, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))
    apart: Mapping[int, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))
    bound: int | None = None


UNLIMITED = Resolved()


def not_written(graph: OperationGraph, attribute: str, value: str) -> Rejection:
    uids = [f"uid {uid}" for uid in graph.producer]
    written = ", ".join(uids if len(uids) <= _SHOWN else [*uids[:_SHOWN], "..."])
    return UID.reject("LIMITS", attribute, value, written=written)


def resolved(limits: FusionLimits, graph: OperationGraph) -> Resolved:
    """Raises ``BadParam`` for uids that no operation of the graph writes."""
    if not limits:
        return UNLIMITED
    named = [
        (f"{name}[{i}]", uid) for name in ("force", "forbid") for i, e in enumerate(getattr(limits, name)) for uid in e
    ]
    raise_if(not_written(graph, name, f"uid {uid}") for name, uid in named if uid not in graph.producer)
    apart: dict[int, set[int]] = {}
    for entry in limits.forbid:
        first = graph.producer[entry[0]]
        others = graph.consumers.get(entry[0], ()) if len(entry) == 1 else (graph.producer[entry[1]],)
        for other in set(others) - {first}:
            apart.setdefault(first, set()).add(other)
            apart.setdefault(other, set()).add(first)
    asked = [{graph.producer[uid] for uid in entry} for entry in limits.force]
    forced = {i: group for group in joined_up(closed(graph, asked)) for i in group}
    return Resolved(forced, {i: frozenset(others) for i, others in apart.items()}, limits.bound)


def closed(graph: OperationGraph, groups: Sequence[Collection[int]]) -> list[frozenset[int]]:
    """Each with the operations on a path between two of it: a kernel that is left cannot be entered again."""
    mine, count = dict[int, int](), len(graph.operations)  # operation -> a bit for each group that has it
    for number, group in enumerate(groups):
        for index in group:
            mine[index] = mine.get(index, 0) | 1 << number
    above, below = [0] * count, [0] * count  # bits of the groups that an operation waits for, and that wait for it
    for producer, consumer in sorted({(producer, consumer) for producer, consumer, _ in graph.edges()}):
        above[consumer] |= above[producer] | mine.get(producer, 0)
    for producer, consumer in sorted({(p, c) for p, c, _ in graph.edges()}, reverse=True):
        below[producer] |= below[consumer] | mine.get(consumer, 0)
    found = [set(group) for group in groups]
    for index in range(count):
        bits = above[index] & below[index]
        while bits:
            found[bits.bit_length() - 1].add(index)
            bits ^= 1 << (bits.bit_length() - 1)
    return [frozenset(group) for group in found]


def joined_up(groups: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Groups that share an operation are one kernel together."""
    found: dict[int, set[int]] = {}
    for group in groups:
        merged = set(group)
        for other in {id(found[i]): found[i] for i in group if i in found}.values():
            merged |= other
        found.update(dict.fromkeys(merged, merged))
    return [frozenset(group) for group in {id(group): group for group in found.values()}.values()]


class Joining(Protocol):
    """What the guards look at: operations that would be one kernel."""

    @property
    def joined(self) -> frozenset[int]: ...

    @property
    def limits(self) -> Resolved: ...

    @property
    def graph(self) -> OperationGraph: ...


def _pair(joining: Joining) -> tuple[int, int] | None:
    """Two of the operations that are forbidden to be together."""
    apart = joining.limits.apart
    pairs = (
        (i, other) for i in sorted(joining.joined) for other in sorted(apart.get(i, ())) if other in joining.joined
    )
    return next(pairs, None)


def _pair_text(joining: Joining) -> str:
    pair = _pair(joining)
    assert pair is not None
    return " with ".join(joining.graph.operations[i].label() for i in pair)


FORBIDDEN = Constraint(
    id="fuse.limits.forbid",
    attribute="consumer",
    look=_pair_text,
    check=Equals("kernels apart"),
    when=lambda joining: bool(joining.limits.apart) and _pair(joining) is not None,
    reason="the requested limits keep these operations apart",
    fix="drop the entry from forbid",
)
BOUND = Constraint(
    id="fuse.limits.bound",
    attribute="operations of the kernel",
    look=lambda joining: len(joining.joined),
    check=lambda joining: AtMost(joining.limits.bound),
    when=lambda joining: joining.limits.bound is not None,
    reason="the requested limits bound the number of operations in a kernel",
    fix="raise bound",
)
LIMIT_GUARDS = (FORBIDDEN, BOUND)
