"""Convolutions and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdnn.dtypes import COMPUTE, Array
from graphdnn.engines.host.kernel import Call, Semantics
from graphdnn.engines.host.matmul import matmul as matrix_product
from graphdnn.engines.host.semantics.arithmetic import Results, blend
from graphdnn.operations import ConvolutionOperation, Matmul


def convolution(direction: Any, first: str, second: str) -> Semantics:
    """Semantics of a convolution computed by ``direction(problem, first, second, compute=, out=, scratch=)``."""

    def evaluate(op: ConvolutionOperation, call: Call) -> Results:
        problem = op.problem
        extents = dict(zip(op.role_names, (problem.x_extents, problem.w_extents, problem.y_extents), strict=True))
        (port,) = op.outputs()
        compute = COMPUTE[op.compute_type]
        out = call.outputs.get(port)
        view = _direct_output(op, out, extents[port], compute)
        operands = (call.operands[p].reshape(extents[p]) for p in (first, second))  # splits an axis: never copies
        result = direction(problem, *operands, compute=compute, out=view, scratch=call.scratch)
        if view is not None and out is not None:
            return {port: out}
        return {port: blend(op, result.reshape(op.outputs()[port].extents), call.old.get(port))}

    return evaluate


def _direct_output(
    op: ConvolutionOperation, out: Array | None, extents: tuple[int, ...], compute: np.dtype[Any]
) -> Array | None:
    """The bound output with its group axis explicit, when the result needs neither conversion nor blending."""
    if out is None or out.dtype != compute or op.alpha != 1.0 or op.beta != 0.0:
        return None
    try:
        return np.reshape(out, extents, copy=False)
    except ValueError:
        return None


def matmul(op: Matmul, call: Call) -> Results:
    return {"c": matrix_product(call.operands["a"], call.operands["b"], COMPUTE[op.compute_type])}
