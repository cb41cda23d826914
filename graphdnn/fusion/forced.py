"""What was to be one kernel and is not: each reason, as the rule that stopped the edge gave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.fusion.fused import Stop
from graphdnn.fusion.limits import Limits, closed, named
from graphdnn.graph import OperationGraph
from graphdnn.rules import Rule

_MOST_TOLD = 16  # entries, and edges of each: who wrote more will look at these first

FORCE = Rule(
    id="limits.force",
    expected="one kernel",
    reason="the limits force these operations into one kernel, and they are in {count}: {why}",
    fix="{fix}",
    status=Status.NOT_SUPPORTED_GRAPH_PATTERN,
)


def unforced(
    limits: Limits, graph: OperationGraph, kernel_of: Mapping[int, int], stops: Sequence[Stop]
) -> Iterator[Rejection]:
    """``kernel_of``: the kernel of each operation, by index."""
    told = 0
    for i, entry in enumerate(limits.force):
        wanted = frozenset(graph.producer[uid] for uid in entry)
        count = len({kernel_of[index] for index in wanted})
        if count == 1 or told == _MOST_TOLD:
            continue
        told += 1
        (inside,) = closed(graph, [wanted])
        between = [stop for stop in stops if inside.issuperset(stop.edge)]
        for stop in between[:_MOST_TOLD]:
            why = f"{stop.reason} (found {stop.actual}, required {stop.required}; {stop.rule})"
            yield FORCE.reject("LIMITS", f"force[{i}]", stop.subject, count=count, why=why, fix=stop.fix)
        if not between:
            why = "no value passes from one to the other, and kernels grow along values"
            fix = "drop the entry from force"
            yield FORCE.reject("LIMITS", f"force[{i}]", named(entry), count=count, why=why, fix=fix)
