"""Floating-point operations and memory traffic of operations, which every cost model and report uses."""

from __future__ import annotations

from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import FLOATS
from graphdnn.engines.memoization import memoize, memoize_by_identity
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import (
    ConvolutionOperation,
    Matmul,
    Operation,
    PointwiseOperation,
    RecurrentOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
)


@memoize_by_identity
def flops(op: Operation) -> int:
    """Arithmetic operations; a multiply-add counts two. Elementwise work by the table's rough cost per element."""
    if isinstance(op, ConvolutionOperation):
        return 2 * op.problem.macs
    if isinstance(op, Matmul):
        return 2 * prod(op.c.extents) * op.a.extents[-1]
    if isinstance(op, PointwiseOperation):
        return prod(next(iter(op.outputs().values())).extents) * op.spec.row.flops
    if isinstance(op, RecurrentOperation):
        return 2 * op.rnn.macs
    if isinstance(op, (ResampleForward, ResampleBackward)):
        return int(prod(op.pooled.extents) * prod(op.spec.window_dims))
    return 2 * max(t.elements for t in op.tensors().values())


@memoize
def bytes_moved(op: FusedOp) -> int:
    """Bytes that have to cross memory at least once: every input read, every output written. A strided filter
    skips pixels; these do not cross memory if channels are neighbours.
    """
    return sum([t.bytes for t in (*op.inputs, *op.outputs)]) - _passed_over(op.anchor)


def _passed_over(anchor: Operation | None) -> int:
    if not isinstance(anchor, ConvolutionOperation) or anchor.tag == "conv_dgrad":
        return 0
    x, p = anchor.roles[0], anchor.problem
    if min(p.stride) == 1 or x.is_virtual or 1 not in x.strides[1 : -p.spatial]:
        return 0
    read = prod([min(1.0, taps / step) for taps, step in zip(p.filter, p.stride, strict=True)])
    return round(x.bytes * (1.0 - read))


def tensor_core_type(op: Operation) -> DataType | None:
    """The operand type whose tensor-core rate bounds a product; None for other operations."""
    if not isinstance(op, (ConvolutionOperation, Matmul)):
        return None
    return max((t.data_type for t in op.inputs().values()), key=lambda t: (t in FLOATS, t is DataType.DOUBLE))


def floor_seconds(op: FusedOp, device: DeviceSpec) -> float:
    """The least time the device could take: arithmetic at peak or traffic at full bandwidth, whichever is longer."""
    arithmetic = 0.0
    for step in op.operations:
        operand = tensor_core_type(step)
        rate = device.compute_rate(step.compute_type) if operand is None else device.rate(operand)
        arithmetic += flops(step) / rate
    return max(arithmetic, bytes_moved(op) / device.bandwidth)


def reduction_length(op: Operation) -> int:
    """The number of terms that one element of the result adds."""
    if isinstance(op, ConvolutionOperation):
        problem = op.problem
        sums = {
            "conv_fprop": problem.c * problem.taps,
            "conv_dgrad": problem.k * problem.taps,
            "conv_wgrad": problem.n * prod(problem.output),
        }
        return sums[op.tag]
    if isinstance(op, Matmul):
        return op.a.extents[-1]
    if isinstance(op, Reduction):
        return max(1, op.x.elements // op.y.elements)
    largest = max(t.elements for t in op.tensors().values())
    return max(1, largest // min(t.elements for t in op.outputs().values()))
