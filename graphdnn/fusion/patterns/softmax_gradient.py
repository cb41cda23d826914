"""Gradients of softmax as graphs write them: a sum over rows, and operations that read these rows again with it.

    dy, y -> MUL -> ADD;  dx = y * (dy - sum)             of a softmax
    dy ----------> ADD;   dx = dy - exp(y) * sum          of a log-softmax

One kernel reads a row once, sums it and goes on with the same elements. Rows that no block holds are read
twice either way: there the sum keeps a kernel of its own, which spreads one row over many blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.fusion.patterns.pattern import Chain, Link
from graphdnn.fusion.patterns.softmax import made_by, reads
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Reduction
from graphdnn.tensors import TensorSpec


def softmax_gradients(graph: OperationGraph) -> Iterator[tuple[Chain, tuple[Link, ...]]]:
    """Every chain with the edges that the guards are to be asked about."""
    for index, operation in enumerate(graph.operations):
        if isinstance(operation, Reduction) and operation.spec.operator is ReductionOperator.ADD:
            found = _of_softmax(graph, index, operation) or _of_logarithm(graph, index, operation)
            if found is not None:
                yield found


def _of_softmax(graph: OperationGraph, index: int, total: Reduction) -> tuple[Chain, tuple[Link, ...]] | None:
    product = made_by(graph, total.x, PointwiseMode.MUL)
    if product is None:
        return None
    factors = [graph.operations[product].inputs()[port] for port in ("x", "b")]
    if any(factor.extents != total.x.extents for factor in factors):
        return None
    for dy, y in (factors, factors[::-1]):
        for difference in _readers(graph, total.y, PointwiseMode.SUB):
            if not reads(graph.operations[difference], dy, total.y):
                continue
            (rest,) = graph.operations[difference].outputs().values()
            for last in _readers(graph, rest, PointwiseMode.MUL):
                if _reads_both(graph, last, y, rest):
                    members = (product, index, difference, last)
                    return _chain(graph, dy, index, members, (total.x, index), (total.y, difference))
    return None


def _of_logarithm(graph: OperationGraph, index: int, total: Reduction) -> tuple[Chain, tuple[Link, ...]] | None:
    for share in _readers(graph, total.y, PointwiseMode.MUL):
        (part,) = graph.operations[share].outputs().values()
        powers = [made_by(graph, graph.operations[share].inputs()[port], PointwiseMode.EXP) for port in ("x", "b")]
        for power in (found for found in powers if found is not None):
            (raised,) = graph.operations[power].outputs().values()
            made = graph.producer.get(graph.operations[power].inputs()["x"].uid, -1)
            for last in _readers(graph, part, PointwiseMode.SUB):
                if (
                    made < index
                    and raised.extents == total.x.extents
                    and _reads_both(graph, share, raised, total.y)
                    and reads(graph.operations[last], total.x, part)
                ):
                    members = (index, power, share, last)
                    return _chain(graph, total.x, index, members, (raised, share), (total.y, share))
    return None


def _readers(graph: OperationGraph, tensor: TensorSpec, mode: PointwiseMode) -> Iterator[int]:
    for reader in graph.consumers.get(tensor.uid, ()):
        if made_by(graph, next(iter(graph.operations[reader].outputs().values())), mode) is not None:
            yield reader


def _reads_both(graph: OperationGraph, index: int, one: TensorSpec, other: TensorSpec) -> bool:
    operation = graph.operations[index]
    return reads(operation, one, other) or reads(operation, other, one)


def _chain(
    graph: OperationGraph,
    dy: TensorSpec,
    anchor: int,
    members: tuple[int, ...],
    of_elements: tuple[TensorSpec, int],
    of_rows: tuple[TensorSpec, int],
) -> tuple[Chain, tuple[Link, ...]]:
    """``of_elements``, ``of_rows``: a tensor and its reader."""
    inside, rows = frozenset(members), of_rows[0].extents
    links = (Link(graph, inside, rows, *of_elements), Link(graph, inside, rows, *of_rows, elements=dy.extents))
    return Chain(anchor, tuple(sorted(members)), dy, rule="softmax_backward"), links
