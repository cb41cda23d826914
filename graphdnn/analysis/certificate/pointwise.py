"""Errors of pointwise operations: what operands carry along, and the operation's own roundings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.known_values import Known
from graphdnn.analysis.certificate.pointwise_propagation import CARRIED
from graphdnn.analysis.certificate.pointwise_rounding import ROUNDED, underflow
from graphdnn.analysis.certificate.roundoff import (
    REFERENCE,
    compute_of,
    gamma,
    largest,
    roundoff,
    smallest,
    smallest_normal,
)
from graphdnn.dtypes import Array
from graphdnn.enums import PointwiseMode
from graphdnn.graph.value_numbering import cancels, is_of_itself
from graphdnn.operations import PointwiseOperation
from graphdnn.tensors import TensorSpec


def pointwise(known: Known, op: PointwiseOperation, operands: Mapping[str, ErrorInterval]) -> ErrorInterval:
    """``operands`` by their ports, in the arithmetic of the operation; the result before it is stored."""
    spec, compute = op.spec, compute_of(op.compute_type)
    boxes = [operands[port] for port in spec.row.operands]
    if is_of_itself(op, known.numbers) and spec.row.kind == "comparison":  # whatever x is off by
        return ErrorInterval(*_range(known, op, boxes, spec.parameters()), np.zeros(()))
    if cancels(op, known.numbers):
        zero_or_one = np.asarray(0.0 if spec.mode is PointwiseMode.SUB else 1.0)
        finite = np.isfinite(boxes[0].reach) & ((boxes[0].error == 0) | (spec.mode is PointwiseMode.SUB))
        found = (
            ErrorInterval(zero_or_one, zero_or_one, np.zeros(()))
            if not known.has_data
            else ErrorInterval.of(known.value(_result(op)))
        )
        return found.with_error(np.where(finite, 0.0, np.inf))
    u = roundoff(compute) + (REFERENCE if compute.kind == "f" else 0.0)
    for i, alpha in enumerate((op.alpha1, op.alpha2)):
        if alpha != 1.0:
            scaled = boxes[i].scaled(alpha)
            boxes[i] = scaled.with_error(scaled.error + 2 * u * scaled.reach + smallest(compute))
    parameters = spec.parameters()
    carried = CARRIED[spec.mode](boxes, parameters)
    low, high = _range(known, op, boxes, parameters)
    if compute.kind != "f":
        top = largest(compute)
        wraps = (np.maximum(np.abs(low), np.abs(high)) + carried > top) & (np.asarray(carried) > 0)
        return ErrorInterval(low, high, np.zeros(())).with_error(np.where(wraps, np.inf, carried))
    units, scale = ROUNDED[spec.mode]
    most = np.maximum(np.abs(low), np.abs(high)) + carried
    own = 0.0 if scale is None else gamma(units, u) * scale(boxes, most, parameters)
    lost = underflow(spec.mode, parameters, smallest(compute), smallest_normal(compute), boxes)
    return ErrorInterval(low, high, np.zeros(())).with_error(carried + own + lost)


def _range(
    known: Known, op: PointwiseOperation, boxes: list[ErrorInterval], parameters: Mapping[str, Any]
) -> tuple[Array, Array]:
    """Of the exact results: their own values where data is there, else what can be said of a box."""
    tensor = _result(op)
    if known.has_data:
        return known.value(tensor), known.value(tensor)
    from graphdnn.analysis.certificate.value_ranges import range_of

    return range_of(op, boxes, parameters)


def _result(op: PointwiseOperation) -> TensorSpec:
    return next(iter(op.outputs().values()))
