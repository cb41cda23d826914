"""Terms: the sums, choices and products that an operation makes of its operands, on magnitudes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.roundoff import REFERENCE
from graphdnn.dtypes import Array
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.enums import ReductionOperator
from graphdnn.operations import Operation, Reduction, ResampleBackward, ResampleForward


class Terms:
    """What an operation adds up, on magnitudes: of arrays by itself, of single ranges by counting terms."""

    def __init__(self, op: Operation, has_data: bool) -> None:
        self.op, self.has_data = op, has_data
        self.length = reduction_length(op)

    def of(self, magnitudes: Mapping[str, Array], unless_zero: tuple[Array, ...] = ()) -> Array:
        """sum |x| |w|; 0 at once where a factor is."""
        if any(not np.any(v) for v in unless_zero):
            return np.zeros(())
        if not self.has_data:
            return np.asarray(self._weight() * prod(float(v) for v in magnitudes.values()))
        from graphdnn.analysis.oracle.float64_evaluation import apply

        return np.abs(apply(self._adding(), magnitudes)) * (1 + (self.length + 8) * 2 * REFERENCE)

    def signed(self, values: Mapping[str, Array]) -> Array:
        """The same sum of values with their signs: the end of a range."""
        if not self.has_data:
            (value,) = values.values()
            return np.asarray(self._weight() * float(value))
        from graphdnn.analysis.oracle.float64_evaluation import apply

        return apply(self._adding(), values)

    def _weight(self) -> float:
        return 1.0 if isinstance(self.op, (ResampleForward, ResampleBackward)) else float(self.length)

    def _adding(self) -> Operation:
        """Other reductions as sums."""
        if not isinstance(self.op, Reduction):
            return self.op
        return self.op.model_copy(update={"spec": self.op.spec.model_copy(update={"operator": ReductionOperator.ADD})})

    def range(self, operands: Mapping[str, ErrorInterval]) -> ErrorInterval:
        """Of a sum of products; terms that fall onto padding are 0."""
        if self.has_data:
            zero = np.zeros(())
            return ErrorInterval(zero, zero, zero)
        x, w = operands.values()
        products = [float(a) * float(b) for a in (x.low, x.high) for b in (w.low, w.high)]
        low, high = min(0.0, *products) * self.length, max(0.0, *products) * self.length
        return ErrorInterval.between(low, high)

    def widest(self, low: Array, high: Array, error: Array) -> ErrorInterval:
        """Of a choice among elements: |max a - max b| <= max |a - b|."""
        if not self.has_data:
            return ErrorInterval(low, high, error)
        if not np.any(error):  # and the values themselves are known
            return ErrorInterval.between(0.0, 0.0)
        from graphdnn.analysis.oracle.float64_evaluation import apply

        op = self.op
        if isinstance(op, Reduction):
            op = op.model_copy(update={"spec": op.spec.model_copy(update={"operator": ReductionOperator.MAX})})
        found = apply(op, {"x": error})
        return ErrorInterval(found, found, found)

    def multiplied(self, values: Array) -> Array:
        if not self.has_data:
            return np.power(np.asarray(values, np.float64), self.length)
        from graphdnn.analysis.oracle.float64_evaluation import apply

        assert isinstance(self.op, Reduction)
        op = self.op.model_copy(update={"spec": self.op.spec.model_copy(update={"operator": ReductionOperator.MUL})})
        return apply(op, {"x": values})

    def peak(self, values: Array) -> float:
        return float(np.max(values, initial=0.0))
