"""What the families share: conversion to the compute type, blending with the old output, scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdnn.dtypes import COMPUTE, Array
from graphdnn.engines.host.kernel import Call
from graphdnn.operations import Operation

Results = Mapping[str, Array]


def to_compute(op: Operation, values: Array) -> Array:
    """``values`` in the arithmetic of the operation; a view when nothing has to change."""
    return values.astype(COMPUTE[op.compute_type], copy=False)


def operand(op: Operation, call: Call, port: str) -> Array | None:
    """The operand in the compute type; None when the port is not set."""
    return to_compute(op, call.operands[port]) if port in call.operands else None


def scalar(call: Call, port: str) -> float:
    """A one-element operand as a Python number."""
    return float(call.operands[port].reshape(())[()])


def blend(op: Any, result: Array, old: Array | None) -> Array:
    """alpha * result + beta * old, in the result's precision; integers stay exact when the factors are whole."""
    alpha, beta = op.alpha, op.beta
    if alpha == 1.0 and beta == 0.0:
        return result
    if result.dtype.kind in "iu" and not (float(alpha).is_integer() and float(beta).is_integer()):
        result = result.astype(np.float64)
    number = result.dtype.type
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = result * number(alpha)
        if beta == 0 or old is None:
            return np.asarray(scaled)
        return np.asarray(scaled + old.astype(result.dtype) * number(beta))


def present(results: Mapping[str, Array | None]) -> Results:
    """Results without the optional ones that were not computed."""
    return {port: values for port, values in results.items() if values is not None}
