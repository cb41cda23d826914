"""What the families share: conversion to the compute type, blending with the old output, scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdnn.dtypes import COMPUTE, Array
from graphdnn.engines.host.kernel import Call
from graphdnn.operations import Operation
from graphdnn.scalars import element

Results = Mapping[str, Array]


def to_compute(op: Operation, values: Array) -> Array:
    """``values`` in the arithmetic of the operation; a view when nothing has to change."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinite, or a signalling NaN
        return values.astype(COMPUTE[op.compute_type], copy=False)


def operand(op: Operation, call: Call, port: str) -> Array | None:
    """The operand in the compute type; None when the port is not set."""
    return to_compute(op, call.operands[port]) if port in call.operands else None


def scalar(call: Call, port: str) -> int | float:
    """A one-element operand as a Python number, integers exactly."""
    return element(call.operands[port].reshape(())[()])


def blend(op: Any, result: Array, old: Array | None) -> Array:
    """alpha * result + beta * old, in the result's precision; integers as ``_blending_type`` says."""
    alpha, beta = op.alpha, op.beta
    if alpha == 1.0 and beta == 0.0:
        return result
    if result.dtype.kind == "i":
        result = result.astype(_blending_type(result.dtype, (alpha, beta), old), copy=False)
    number = result.dtype.type
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = result * number(alpha)
        if beta == 0:
            return np.asarray(scaled)
        assert old is not None  # the kernel loads what beta reads
        return np.asarray(scaled + old.astype(result.dtype) * number(beta))


def _blending_type(result: np.dtype[Any], factors: tuple[float, ...], old: Array | None) -> np.dtype[Any]:
    """Whole factors and an integer ``old`` keep integers exact, in 64 bits if ``old`` has them; else float64."""
    if old is not None and old.dtype.kind not in "iub":
        return np.dtype(np.float64)
    wide = result if old is None else np.promote_types(result, old.dtype)
    fits = all(float(f).is_integer() and abs(f) <= np.iinfo(wide).max for f in factors)
    return wide if fits else np.dtype(np.float64)


def present(results: Mapping[str, Array | None]) -> Results:
    """Results without the optional ones that were not computed."""
    return {port: values for port, values in results.items() if values is not None}
