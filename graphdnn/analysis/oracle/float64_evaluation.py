"""Single operations in float64 on any arrays: the sum |x||w| of a convolution, a result of other operands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from graphdnn.analysis.oracle.reference import with_tensors
from graphdnn.dtypes import Array
from graphdnn.engines.host.kernel import Call, Semantics
from graphdnn.enums import DataType
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    Operation,
)
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec


def in_double(op: Operation) -> Operation:
    """The operation with float64 for every type of its tensors and its arithmetic, integers included."""
    tensors = {t.uid: _doubled(t) for t in op.tensors().values()}
    settings = {name: getattr(op, name) for name in type(op).model_fields}
    changes = {
        name: value.model_copy(update=_types(value))
        for name, value in settings.items()
        if isinstance(value, Spec) and not isinstance(value, TensorSpec)
    }
    return with_tensors(op, tensors).model_copy(update=changes | _types(op))


def _doubled(tensor: TensorSpec) -> TensorSpec:
    return tensor.model_copy(update={"data_type": DataType.DOUBLE, "byte_alignment": max(8, tensor.byte_alignment)})


def _types(spec: Spec) -> dict[str, DataType]:
    return {name: DataType.DOUBLE for name in ("compute_type", "math_type") if name in type(spec).model_fields}


def apply(op: Operation, operands: Mapping[str, Array], **changes: Any) -> Array:
    """The first result of an operation in float64 on these operands; without alpha and beta."""
    return next(iter(apply_all(op, operands, **changes).values()))


def apply_all(op: Operation, operands: Mapping[str, Array], **changes: Any) -> dict[str, Array]:
    """Like ``apply``, every result by its port."""
    plain = {name: value for name, value in (("alpha", 1.0), ("beta", 0.0)) if name in type(op).model_fields}
    double = in_double(op).model_copy(update=plain | changes)
    shaped = {port: np.ascontiguousarray(np.broadcast_to(operands[port], t.extents)) for port, t in op.inputs().items()}
    with np.errstate(all="ignore"):
        results = _semantics(type(op))(double, Call(operands=shaped, outputs={}, old={}, scratch=None))
    return {port: np.asarray(results[port], np.float64).reshape(t.extents) for port, t in op.outputs().items()}


@cache
def _semantics(kind: type[Operation]) -> Semantics:
    """Convolutions by BLAS: these are made several times over."""
    from graphdnn.engines.host import convolution as blocked
    from graphdnn.engines.host.semantics import SEMANTICS, convolution

    fast: dict[type[Operation], Semantics] = {
        ConvForward: convolution(partial(blocked.fprop), "x", "w"),
        ConvBackwardData: convolution(partial(blocked.dgrad), "dy", "w"),
        ConvBackwardFilter: convolution(partial(blocked.wgrad), "x", "dy"),
    }
    return fast.get(kind, SEMANTICS[kind])
