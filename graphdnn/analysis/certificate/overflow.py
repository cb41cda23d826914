"""Overflow proofs: whether the sums of an integer operation can leave the type that they are kept in.

Ranges are whole numbers, worked out without rounding. A sum of n products is proved where
``n * max|x| * max|w|`` fits; with data, where the largest sum of magnitudes that is there does. What is not proved
wraps modulo 2^32 (exactly, as documented), so the range of its results is that of the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, inf
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.roundoff import compute_of
from graphdnn.dtypes import ELEMENTS, FLOATS, Array
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.enums import DataType, ReductionOperator
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    Concat,
    ConvolutionOperation,
    Matmul,
    Operation,
    PointwiseOperation,
    Reduction,
    Reshape,
    Slice,
    Transpose,
)
from graphdnn.spec import Attr
from graphdnn.tensors import TensorSpec

Range = tuple[int, int]
_R = ReductionOperator


@dataclass(frozen=True, slots=True)
class OverflowProof:
    """What is known of the sums of one integer operation: the largest magnitude, and whether the type holds it."""

    operation: str
    arithmetic: DataType
    length: int  # terms of a sum
    largest: int  # magnitude that the sums cannot exceed
    limit: int  # of the arithmetic
    is_proved: bool
    attribute: str  # that sets the arithmetic
    from_data: bool  # ``largest`` is that of the data, not of ranges

    @property
    def advice(self) -> str:
        """What to do if the absence of an overflow is not proved; else empty."""
        if self.is_proved:
            return ""
        if self.arithmetic is DataType.INT64:
            return "scale the operands down: no integer type here is wider"
        return f"accumulate in int64: compute=i64 in a line, or {self.attribute} = {DataType.INT64.c_name}"

    def __str__(self) -> str:
        where = "in this data" if self.from_data else f"of {self.length} terms"
        said = (
            f"{self.operation}: sums {where} are at most {self.largest:,}, {self.arithmetic.name} holds {self.limit:,}"
        )
        return f"{said}: no overflow" if self.is_proved else f"{said}: NOT proved, they may wrap; {self.advice}"

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the proof."""
        return {
            "operation": self.operation, "arithmetic": self.arithmetic.name, "length": self.length,
            "largest": str(self.largest), "limit": str(self.limit), "is_proved": self.is_proved,
            "from_data": self.from_data, "advice": self.advice,
        }  # fmt: skip


def overflow_proofs(
    graph: OperationGraph, given: Mapping[int, tuple[float, float]], values: Mapping[int, Array] | None
) -> tuple[OverflowProof, ...]:
    """One for each operation in integer arithmetic that may make larger numbers than it is given."""
    ranges: dict[int, Range] = {}
    for tensor in graph.tensors.values():
        if tensor.uid not in graph.producer:
            ranges[tensor.uid] = _input(tensor, given, values)
    proofs = []
    for op in graph.operations:
        found, proof = _result(op, ranges, values)
        proofs += [] if proof is None else [proof]
        for port, tensor in op.outputs().items():
            ranges[tensor.uid] = _within(found if port != "index" else _of_type(tensor), _of_type(tensor))
    return tuple(proofs)


def _of_type(tensor: TensorSpec) -> Range:
    if tensor.data_type in FLOATS:
        return (0, 0)  # floats take no part
    limits = ELEMENTS[tensor.data_type]
    return int(limits.smallest), int(limits.largest)


def _input(tensor: TensorSpec, given: Mapping[int, tuple[float, float]], values: Mapping[int, Array] | None) -> Range:
    whole = _of_type(tensor)
    if tensor.data_type in FLOATS:
        return whole
    if values is not None and tensor.uid in values:
        array = np.asarray(values[tensor.uid])
        return int(array.min()), int(array.max())
    low, high = given.get(tensor.uid, (-inf, inf))
    return max(whole[0], whole[0] if low == -inf else floor(low)), min(
        whole[1], whole[1] if high == inf else floor(high)
    )


def _within(found: Range, limits: Range) -> Range:
    """Saturated to a storage type."""
    low, high = (min(max(v, limits[0]), limits[1]) for v in found)
    return low, high


def _result(
    op: Operation, ranges: Mapping[int, Range], values: Mapping[int, Array] | None
) -> tuple[Range, OverflowProof | None]:
    operands = [ranges[t.uid] for t in op.inputs().values()]
    compute = compute_of(op.compute_type)
    if isinstance(op, (Concat, Reshape, Slice, Transpose)):
        return (min(r[0] for r in operands), max(r[1] for r in operands)), None
    tensor = next(iter(op.outputs().values()))
    if compute is None or compute.kind not in "iu" or any(t.data_type in FLOATS for t in op.inputs().values()):
        return _of_type(tensor), None
    limit = 2 ** (8 * compute.itemsize - 1) - 1
    whole = (-limit - 1, limit)
    length, found = _sums(op, operands)
    if found is None:
        return whole, None
    from_data, most = False, max(map(abs, found))
    if isinstance(op, (ConvolutionOperation, Matmul)) and values is not None:
        from_data, most = True, _in_data(op, values)
        found = (-most, most)
    proved = most <= limit
    proof = OverflowProof(op.label(), op.compute_type, length, most, limit, proved, _attribute(op), from_data)
    return found if proved else whole, proof if length > 1 or not proved else None


def _sums(op: Operation, operands: list[Range]) -> tuple[int, Range | None]:
    """(terms, range of the results before they wrap); None where nothing grows, or it is not followed."""
    if isinstance(op, (ConvolutionOperation, Matmul)):
        (a, b), (c, d) = operands[:2]
        n = reduction_length(op)
        corners = [v * w for v in (a, b) for w in (c, d)]
        return n, (min(0, *corners) * n, max(0, *corners) * n)
    if isinstance(op, Reduction):
        n = max(1, op.x.elements // op.y.elements)
        (a, b) = operands[0]
        if op.spec.operator is _R.ADD:
            return n, (a * n, b * n)
        if op.spec.operator is _R.NORM1:
            return n, (0, max(abs(a), abs(b)) * n)
        if op.spec.operator in (_R.MAX, _R.MIN):
            return 1, (a, b)
        return n, None
    if isinstance(op, PointwiseOperation) and op.alpha1 == op.alpha2 == 1.0:
        return 1, _pointwise(op, operands)
    return 1, None


def _pointwise(op: PointwiseOperation, operands: list[Range]) -> Range | None:
    name = op.spec.mode.name
    if op.spec.row.kind in ("comparison", "logical"):
        return 0, 1
    (a, b), (c, d) = operands[0], operands[1] if len(operands) > 1 else (0, 0)
    corners = [v * w for v in (a, b) for w in (c, d)]
    squares = (0 if c <= 0 <= d else min(c * c, d * d), max(c * c, d * d))
    found: dict[str, Range] = {
        "ADD": (a + c, b + d), "SUB": (a - d, b - c), "MUL": (min(corners), max(corners)),
        "MIN": (min(a, c), min(b, d)), "MAX": (max(a, c), max(b, d)), "IDENTITY": (a, b), "CEIL": (a, b),
        "FLOOR": (a, b), "NEG": (-b, -a), "ABS": (0, max(abs(a), abs(b))), "BINARY_SELECT": (min(a, c), max(b, d)),
        "ADD_SQUARE": (a + squares[0], b + squares[1]),
    }  # fmt: skip
    if name == "RELU_FWD" and op.spec.relu_lower_clip_slope == 0:
        low, high = op.spec.relu_lower_clip, op.spec.relu_upper_clip
        return max(a, a if low == -inf else floor(low)), max(
            min(b, b if high == inf else floor(high)), floor(max(low, a))
        )
    return found.get(name)


def _in_data(op: Operation, values: Mapping[int, Array]) -> int:
    """The largest sum of magnitudes; in float64, so rounded up where it is beyond 2^53."""
    from graphdnn.analysis.oracle.float64_evaluation import apply

    operands = {port: np.abs(np.asarray(values[t.uid]).astype(np.float64)) for port, t in op.inputs().items()}
    largest = float(apply(op, operands).max(initial=0.0))
    return int(largest) if largest <= 2**53 else int(largest * (1 + reduction_length(op) * 2.0**-52)) + 1


def _attribute(op: Operation) -> str:
    """The C name of the attribute that sets the type of the arithmetic."""
    specs = [op, *(getattr(op, name) for name in type(op).model_fields)]
    for spec in specs:
        for name in ("compute_type", "math_type"):
            row = getattr(type(spec), "model_fields", {}).get(name)
            found = None if row is None else next((m for m in row.metadata if isinstance(m, Attr)), None)
            if found is not None:
                return found.name.c_name
    return "the compute type"
