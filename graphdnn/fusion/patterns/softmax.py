"""Softmax as graphs write it: two reductions over the same rows and the operations between them become one kernel.

    x -> MAX -> SUB -> EXP -> ADD -> DIV                  softmax
    x -> MAX -> SUB -> EXP -> ADD -> LOG -> SUB           log-softmax, from the differences
    x -> EXP -> ADD -> DIV, or -> LOG -> SUB              both without the maximum
    x -> MAX -> SUB -> EXP -> ADD                         sums alone, as a cross-entropy asks for

What else is computed of the rows' maxima and sums alone (logarithms, their sum with the
maximum) belongs to the chain. A chain that nearly fits stays apart, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.fusion.patterns.pattern import Chain, Link
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, PointwiseOperation, Reduction
from graphdnn.tensors import TensorSpec


def softmax_chains(graph: OperationGraph) -> Iterator[tuple[Chain, tuple[Link, ...]]]:
    """Every chain with the edges that the guards are to be asked about."""
    for index, operation in enumerate(graph.operations):
        if isinstance(operation, Reduction) and operation.spec.operator is ReductionOperator.ADD:
            found = _chain(graph, index, operation)
            if found is not None:
                yield found


def _chain(graph: OperationGraph, index: int, total: Reduction) -> tuple[Chain, tuple[Link, ...]] | None:
    powers = made_by(graph, total.x, PointwiseMode.EXP)
    if powers is None:
        return None
    exponent = _operand(graph, powers, "x")
    members = [powers, index]
    x, anchor = exponent, index
    difference = made_by(graph, exponent, PointwiseMode.SUB)
    if difference is not None:
        maximum = _maximum(graph, difference)
        if maximum is not None:
            x, anchor = _operand(graph, difference, "x"), maximum
            members += [difference, maximum]
    ends = _ends(graph, index, total, exponent)
    if not ends and anchor == index:
        return None
    members += _of_rows(graph, [anchor, index], [*members, *ends])
    members += ends
    chain = Chain(anchor, tuple(sorted(set(members))), x)
    first = graph.operations[anchor]
    assert isinstance(first, Reduction)
    inside = frozenset(chain.members)
    links = [Link(graph, inside, first.y.extents, total.x, index)]
    if anchor != index:
        links.append(Link(graph, inside, first.y.extents, exponent, powers))
    return chain, tuple(links)


def made_by(graph: OperationGraph, tensor: TensorSpec, mode: PointwiseMode) -> int | None:
    producer = graph.producer.get(tensor.uid)
    return producer if producer is not None and _is(graph.operations[producer], mode) else None


def _is(operation: Operation, mode: PointwiseMode) -> bool:
    return isinstance(operation, PointwiseOperation) and operation.spec.mode is mode


def _operand(graph: OperationGraph, index: int, port: str) -> TensorSpec:
    return graph.operations[index].inputs()[port]


def _maximum(graph: OperationGraph, difference: int) -> int | None:
    """The MAX reduction of the operand that it is subtracted from."""
    x, b = _operand(graph, difference, "x"), _operand(graph, difference, "b")
    producer = graph.producer.get(b.uid)
    operation = None if producer is None else graph.operations[producer]
    if not isinstance(operation, Reduction) or operation.spec.operator is not ReductionOperator.MAX:
        return None
    return producer if operation.x.uid == x.uid else None


def _ends(graph: OperationGraph, index: int, total: Reduction, exponent: TensorSpec) -> list[int]:
    """What closes the chain: quotients of powers and sum, or differences of exponent and logarithm."""
    found = []
    for reader in graph.consumers.get(total.y.uid, ()):
        operation = graph.operations[reader]
        if _is(operation, PointwiseMode.DIV) and reads(operation, total.x, total.y):
            found.append(reader)
        if _is(operation, PointwiseMode.LOG):
            (logarithm,) = operation.outputs().values()
            ends = [
                last
                for last in graph.consumers.get(logarithm.uid, ())
                if _is(graph.operations[last], PointwiseMode.SUB) and reads(graph.operations[last], exponent, logarithm)
            ]
            found += [reader, *ends] if ends else []
    return found


def reads(operation: Operation, x: TensorSpec, b: TensorSpec) -> bool:
    inputs = operation.inputs()
    return inputs["x"].uid == x.uid and inputs["b"].uid == b.uid


def _of_rows(graph: OperationGraph, reductions: list[int], members: list[int]) -> list[int]:
    """Pointwise operations on the rows' values alone, in execution order."""
    made = [t for i in reductions for t in graph.operations[i].outputs().values()]
    rows = {t.uid for t in made}
    waiting = sorted({reader for uid in rows for reader in graph.consumers.get(uid, ())})  # a heap
    found: list[int] = []
    seen = set(waiting)
    while waiting:
        index = heappop(waiting)
        operation = graph.operations[index]
        if not isinstance(operation, PointwiseOperation):
            continue
        (result,) = operation.outputs().values()
        asked = [t for t in operation.inputs().values() if not (t.is_by_value or t.is_constant)]
        if all(t.uid in rows for t in asked) and result.extents == made[0].extents:
            rows.add(result.uid)
            if index not in members:
                found.append(index)
            for reader in graph.consumers.get(result.uid, ()):
                if reader not in seen:
                    seen.add(reader)
                    heappush(waiting, reader)
    return found
