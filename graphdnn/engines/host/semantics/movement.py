"""Data movement: values keep their storage type."""

from __future__ import annotations

import numpy as np

from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.semantics.arithmetic import Results
from graphdnn.enums import ReshapeMode
from graphdnn.operations import Concat, Reshape, Slice, Transpose
from graphdnn.tensors import stride_order


def concat(op: Concat, call: Call) -> Results:
    return {"y": np.concatenate([call.operands[port] for port in op.inputs()], axis=op.axis)}


def reshape(op: Reshape, call: Call) -> Results:
    x = call.operands["x"]
    if op.mode is ReshapeMode.LOGICAL:
        return {"y": x.reshape(op.y.extents)}
    # VIEW_ONLY keeps the order in memory: read x along its strides, write y along its own.
    in_memory = x.transpose(stride_order(op.x.dims, op.x.strides)).reshape(-1)
    order = stride_order(op.y.dims, op.y.strides)
    laid_out = in_memory.reshape([op.y.dims[axis] for axis in order])
    return {"y": laid_out.transpose(np.argsort(order))}


def transpose(op: Transpose, call: Call) -> Results:
    return {"y": call.operands["x"].transpose(op.permutation)}


def slice_(op: Slice, call: Call) -> Results:
    return {"y": call.operands["x"][op.slices]}
