"""Which random data an input needs for its graph's results to be numbers that differ from each other."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.enums import PointwiseMode
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    ConvBackwardData,
    ConvForward,
    CtcLoss,
    Matmul,
    Operation,
    PointwiseOperation,
    RecurrentOperation,
)
from graphdnn.tensors import TensorSpec

_FACTOR = 0.5  # what a number by value is that tensors are multiplied with


@dataclass(frozen=True, slots=True)
class DataRange:
    """``deviation`` is of normal numbers, ``low`` and ``high`` of integers; ``is_share``: each row adds up to 1."""

    deviation: float = 1.0
    low: int | None = None
    high: int | None = None
    is_share: bool = False
    by_value: float | None = None


def data_ranges(graph: OperationGraph) -> dict[int, DataRange]:
    """By uid, of inputs that are not drawn as all others are."""
    found: dict[int, DataRange] = {}
    for uid, terms in _terms(graph).items():
        found[uid] = DataRange(deviation=1 / sqrt(terms))
    for op in graph.operations:
        if isinstance(op, PointwiseOperation):
            found.update(_positions(graph, op))
            if op.spec.mode is PointwiseMode.MUL:
                found.update((t.uid, DataRange(by_value=_FACTOR)) for t in op.inputs().values() if t.is_by_value)
        elif isinstance(op, CtcLoss):
            found.update(_sequences(op))
    return {uid: row for uid, row in found.items() if uid not in graph.producer}


def _terms(graph: OperationGraph) -> dict[int, int]:
    """Of inputs that are weights, how many terms the sums have that they enter: the most, where they enter several."""
    found: dict[int, int] = {}
    for op in graph.operations:
        weight = _weight(op, graph)
        if weight is not None:
            terms = op.rnn.hidden_size if isinstance(op, RecurrentOperation) else reduction_length(op)
            found[weight.uid] = max(found.get(weight.uid, 1), terms)
    return found


def _weight(op: Operation, graph: OperationGraph) -> TensorSpec | None:
    if isinstance(op, (ConvForward, ConvBackwardData)):
        return op.w
    if isinstance(op, Matmul):
        return op.b if op.b.uid not in graph.producer else op.a
    return op.inputs().get("w") if isinstance(op, RecurrentOperation) else None


def _positions(graph: OperationGraph, op: PointwiseOperation) -> dict[int, DataRange]:
    """Of integers that are compared with positions along an axis, as lengths are: 0 of them would hide everything."""
    if op.spec.row.kind != "comparison":
        return {}
    operands, found = list(op.inputs().values()), {}
    for index, other in (operands, operands[::-1]):
        source = graph.operations[graph.producer[index.uid]] if index.uid in graph.producer else None
        if not isinstance(source, PointwiseOperation) or source.spec.mode is not PointwiseMode.GEN_INDEX:
            continue
        if ELEMENTS[other.data_type].kind not in ("float", "bool"):
            most = min(index.extents[source.spec.axis], int(ELEMENTS[other.data_type].largest))
            found[other.uid] = DataRange(low=1, high=most)
    return found


def _sequences(op: CtcLoss) -> dict[int, DataRange]:
    """Probabilities, and labels that fit into the steps with a blank between any two."""
    steps, _, classes = op.probs.extents
    longest = max(1, min(op.labels.extents[1], (steps + 1) // 2))
    return {
        op.probs.uid: DataRange(is_share=True),
        op.labels.uid: DataRange(low=1, high=max(1, classes - 1)),
        op.label_lengths.uid: DataRange(low=1, high=longest),
        op.input_lengths.uid: DataRange(low=steps, high=steps),
    }
