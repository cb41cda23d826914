"""NCHW results whose images have an odd number of pixels: the kernel writes NHWC to the workspace, and a copy follows.

With an odd number of pixels, rows of an NCHW result are unaligned. The kernel would store single elements, each with a
division to find the image. A copy of the whole result takes less time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_lines
from graphdnn.engines.cuda.codegen.index_space import is_addressable
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.simt.implicit_copies import channels_last
from graphdnn.engines.cuda.sm90.tma_operands import ALIGNMENT
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

_CHANNELS, _PIXELS = 2, slice(3, 6)  # axes of an image


@dataclass(frozen=True, slots=True)
class ChannelsLastResult:
    """A fused operation that writes ``nhwc_result`` instead of ``result``."""

    op: FusedOp
    nhwc_result: TensorSpec
    result: TensorSpec


@memoize_for_lines
def _is_odd_nchw(op: FusedOp) -> bool:
    if not isinstance(op.anchor, ConvolutionOperation) or op.exit is not None or len(op.outputs) != 1:
        return False
    if op.anchor.reads_output:  # the earlier contents are NCHW
        return False
    (result,) = op.outputs
    roles = Roles.of(op.anchor)
    if roles.direction == "wgrad" or not is_addressable(result) or result.elements != roles.output.elements:
        return False
    front_only = op.uses.front_only
    if any(t.elements >= result.elements for t in op.inputs if t.uid not in front_only):
        return False
    space = roles.space(roles.output)
    strides, sizes, size = space.strides(result), space.sizes, ELEMENTS[result.data_type].bytes
    pixels = prod(sizes[_PIXELS])
    is_nchw = strides[5] == 1 and strides[_CHANNELS] == pixels and sizes[_CHANNELS] * size % ALIGNMENT == 0
    return pixels % 2 != 0 and pixels != 1 and is_nchw and result.byte_alignment % ALIGNMENT == 0


@memoize
def channels_last_result(op: FusedOp) -> ChannelsLastResult | None:
    """None if the kernel writes the result itself."""
    if not _is_odd_nchw(op):
        return None
    assert isinstance(op.anchor, ConvolutionOperation)
    (result,), roles = op.outputs, Roles.of(op.anchor)
    nhwc_result = result.model_copy(
        update={
            "uid": min(t.uid for t in (*op.inputs, *op.outputs, *op.internal)) - 1,
            "dims": result.extents,
            "strides": channels_last(result, roles),
            "byte_alignment": ALIGNMENT,
            "is_virtual": False,
        }
    )
    operations = [op.anchor, *op.epilogue]
    (port,) = (name for name, t in operations[-1].outputs().items() if t.uid == result.uid)
    operations[-1] = operations[-1].model_copy(update={port: nhwc_result})
    return ChannelsLastResult(
        replace(op, anchor=operations[0], epilogue=tuple(operations[1:]), outputs=(nhwc_result,)), nhwc_result, result
    )
