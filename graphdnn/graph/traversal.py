"""Orders, loops and parts of small directed graphs, given as the successors of each node.

Importing a graph library takes ten times as long as building a plan, and these three questions are all that
building one asks.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence

Successors = Sequence[Collection[int]]


def topological(successors: Successors, rank: Sequence[int] | None = None) -> list[int]:
    """The nodes so that each comes before its successors, smallest rank (or number) first where there is a choice.

    Nodes on a loop, and what comes after them, are left out.
    """
    ranks = range(len(successors)) if rank is None else rank
    waiting_for = [0] * len(successors)
    for following in successors:
        for node in following:
            waiting_for[node] += 1
    ready = [(ranks[node], node) for node, count in enumerate(waiting_for) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for following_node in successors[node]:
            waiting_for[following_node] -= 1
            if waiting_for[following_node] == 0:
                heapq.heappush(ready, (ranks[following_node], following_node))
    return order


def loop(successors: Successors) -> list[int]:
    """The nodes of a loop in the direction of its edges, from the smallest one on; empty where there is none."""
    left = set(range(len(successors))) - set(topological(successors))
    before: dict[int, int] = {}  # each node on a loop, or after one, has a node that is left before it
    for node in sorted(left, reverse=True):
        before.update((following, node) for following in successors[node] if following in left)
    if not left:
        return []
    walked: list[int] = []
    node = min(left)
    while node not in walked:
        walked.append(node)
        node = before[node]
    found = walked[walked.index(node) :][::-1]
    start = found.index(min(found))
    return found[start:] + found[:start]


def parts(count: int, edges: Iterable[tuple[int, int]]) -> int:
    """How many connected parts ``count`` nodes fall into, whatever the direction of the edges."""
    leader = list(range(count))

    def lead(node: int) -> int:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for a, b in edges:
        leader[lead(a)] = lead(b)
    return sum(lead(node) == node for node in range(count))
