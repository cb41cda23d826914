"""What was to be one kernel and is not: each reason, as the rule that stopped the edge gave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.fusion.fused import Stop
from graphdnn.fusion.limits import Limits, named, with_what_is_between
from graphdnn.graph import OperationGraph
from graphdnn.rules import Rule

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
    for i, entry in enumerate(limits.force):
        wanted = frozenset(graph.producer[uid] for uid in entry)
        count = len({kernel_of[index] for index in wanted})
        if count == 1:
            continue
        inside = with_what_is_between(graph, wanted)
        between = [stop for stop in stops if inside.issuperset(stop.edge)]
        for stop in between:
            why = f"{stop.reason} (found {stop.actual}, required {stop.required}; {stop.rule})"
            yield FORCE.reject("LIMITS", f"force[{i}]", stop.subject, count=count, why=why, fix=stop.fix)
        if not between:
            why = "no value passes from one to the other, and kernels grow along values"
            fix = "drop the entry from force"
            yield FORCE.reject("LIMITS", f"force[{i}]", named(entry), count=count, why=why, fix=fix)
