"""What the implicit GEMM on tensor cores needs of a convolution."""

from __future__ import annotations

from graphdnn.checks import Equals, OneOf
from graphdnn.engines.cuda.generator.needs import ROOM
from graphdnn.engines.engine import Task, kind_need, need, needs_rule
from graphdnn.enums import DataType
from graphdnn.operations import ConvolutionOperation
from graphdnn.rules import Constraint

_INT_MAX = 2**31 - 1
Pairs = tuple[tuple[DataType, DataType], ...]
_FLOATS: Pairs = ((DataType.HALF, DataType.HALF), (DataType.BFLOAT16, DataType.BFLOAT16))
_BYTES: Pairs = tuple((a, b) for a in (DataType.INT8, DataType.UINT8) for b in (DataType.INT8, DataType.UINT8))
EXACT_PAIRS: Pairs = (*_FLOATS, *_BYTES)
TF32_PAIRS: Pairs = ((DataType.FLOAT, DataType.FLOAT),)
_FLOAT_SUMS = (DataType.FLOAT, DataType.HALF, DataType.BFLOAT16)


def _is_convolution(task: Task) -> bool:
    return isinstance(task.op.anchor, ConvolutionOperation)


def _types(task: Task) -> tuple[DataType, ...]:
    return tuple(t.data_type for t in task.op.main.inputs().values())


def _sums(task: Task) -> OneOf:
    types = _types(task)
    if types in TF32_PAIRS:
        return OneOf(DataType.FLOAT)
    return OneOf(*_FLOAT_SUMS) if types in _FLOATS else OneOf(DataType.INT32)


def _reach(task: Task) -> int:
    """The largest coordinate that the kernel computes, with a tile more of pixels than there are."""
    op = task.op.anchor
    assert isinstance(op, ConvolutionOperation)
    p = op.problem
    axes = zip(p.input, p.output, p.filter, p.dilation, p.stride, p.pre_padding, p.post_padding, strict=True)
    return max(int(i + o * s + f * d + pre + post) for i, o, f, d, s, pre, post in axes)


def mma_needs(prefix: str, pairs: Pairs) -> tuple[Constraint, ...]:
    """Ids begin with ``prefix``."""
    return (
        needs_rule(f"{prefix}.operation", "conv"),
        ROOM,
        kind_need(
            f"{prefix}.data_type",
            "data_type",
            _types,
            OneOf(*pairs),
            reason="the tensor cores take pairs of these types here",
            fix="cast both to one of them",
            when=_is_convolution,
        ),
        kind_need(
            f"{prefix}.compute_type",
            "conv.compute_type",
            lambda task: task.op.main.compute_type,
            _sums,
            reason="tensor cores add 16-bit products in fp32, and products of bytes in int32",
            fix="accumulate floats in FLOAT, bytes in INT32",
            when=lambda task: _is_convolution(task) and _types(task) in pairs,
        ),
        kind_need(
            f"{prefix}.prologue",
            "prologue",
            lambda task: len(task.op.prologue),
            Equals(0),
            reason="operands are copied to shared memory as they are, without passing through registers",
            fix="let the pointwise operations before the convolution write their result",
            when=_is_convolution,
        ),
        need(
            f"{prefix}.coordinates",
            "conv.pre_paddings",
            _reach,
            Equals(f"coordinates up to {_INT_MAX}"),
            reason="coordinates, padding and dilated taps included, are 32-bit numbers in the kernel",
            fix="pad or dilate less",
            when=lambda task: _is_convolution(task) and _reach(task) > _INT_MAX,
        ),
    )
