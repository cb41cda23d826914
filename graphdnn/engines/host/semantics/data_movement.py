"""Data movement: values keep their storage type."""

from __future__ import annotations

import numpy as np

from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.memory import join_vectors, split_vectors
from graphdnn.engines.host.semantics.arithmetic import Results
from graphdnn.enums import ReshapeMode
from graphdnn.operations import Concat, Reshape, Slice, Transpose
from graphdnn.tensors import TensorSpec, stride_order


def concat(op: Concat, call: Call) -> Results:
    return {"y": np.concatenate([call.operands[port] for port in op.inputs()], axis=op.axis)}


def reshape(op: Reshape, call: Call) -> Results:
    x = call.operands["x"]
    if op.mode is ReshapeMode.LOGICAL:
        return {"y": x.reshape(op.y.extents)}
    # VIEW_ONLY keeps the order in memory: read x along its strides, write y along its own.
    in_memory = split_vectors(x, op.x).transpose(_memory_order(op.x)).reshape(-1)
    order = _memory_order(op.y)
    extents = (*op.y.dims, op.y.vector_count)
    laid_out = in_memory.reshape([extents[axis] for axis in order]).transpose(np.argsort(order))
    return {"y": join_vectors(laid_out, op.y)}


def _memory_order(spec: TensorSpec) -> tuple[int, ...]:
    """Axes from outermost to innermost in memory, the vector as a last axis of its own."""
    return (*stride_order(spec.dims, spec.strides), len(spec.dims))


def transpose(op: Transpose, call: Call) -> Results:
    return {"y": call.operands["x"].transpose(op.permutation)}


def slice_(op: Slice, call: Call) -> Results:
    return {"y": call.operands["x"][op.slices]}
