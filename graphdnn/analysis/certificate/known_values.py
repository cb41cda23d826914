"""Known: what bounds are derived from, the values of all tensors or ranges of the inputs alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.roundoff import gamma, likely
from graphdnn.dtypes import Array
from graphdnn.graph.value_numbering import Numbers
from graphdnn.tensors import TensorSpec


class NoBound(Exception):
    """No bound is derived for an operation, and why."""


@dataclass(frozen=True, slots=True)
class Known:
    """``values``: the reference of every tensor by uid, or None where only ranges of the inputs are known."""

    values: Mapping[int, Array] | None
    before: Mapping[int, Array] = field(default_factory=dict)  # of outputs that a beta reads
    is_statistical: bool = False  # bounds that hold almost always, in place of bounds that always hold
    totals: dict[int, Array] = field(default_factory=dict)  # of sums of exact operands, which another walk may share
    numbers: Numbers = field(default_factory=dict)  # of tensors that carry the same values

    @property
    def has_data(self) -> bool:
        return self.values is not None

    def value(self, tensor: TensorSpec) -> Array:
        assert self.values is not None
        return np.asarray(self.values[tensor.uid]).astype(np.float64, copy=False)

    def old(self, tensor: TensorSpec) -> ErrorInterval:
        if tensor.uid not in self.before:
            raise NoBound(f"beta reads the old contents of {tensor.label()}, whose range is not known")
        return ErrorInterval.of(self.before[tensor.uid])

    def grown(self, n: int, u: float) -> float:
        """The relative error of n roundings of ``u`` each."""
        return likely(n, u) if self.is_statistical else gamma(n, u)
