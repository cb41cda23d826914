"""The operands of a direct convolution, fprop or dgrad: an image, a filter, an output."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import (
    aligned_width,
    copy_bytes,
    effective_dilation,
    element_bytes,
    packed_filter,
    power_of_two_in,
    undilated,
)
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands by their roles.

    Args:
        image: The image that the filter slides over: x, or dy in dgrad.
        filter: The filter.
        output: y, or dx in dgrad.
        shape: The shape of the convolution in the operands' types and layouts.
    """

    roles: Roles
    image: TensorSpec
    filter: TensorSpec
    output: TensorSpec
    shape: Shape

    @classmethod
    def of(cls, op: FusedOp) -> Operands:
        assert isinstance(op.anchor, ConvolutionOperation)
        roles = Roles.of(op.anchor)
        x, w, y = op.anchor.roles
        dgrad = roles.direction == "dgrad"
        image, output = (y, x) if dgrad else (x, y)
        output_bytes = sum(t.bytes for t in op.outputs)
        other_bytes = bytes_moved(op) - image.bytes - output_bytes
        shape = Shape(
            undilated(roles.problem), dgrad, False, element_bytes(image), max(1, round(output_bytes / output.elements)),
            element_bytes(w), other_bytes, copy_bytes(roles, image),
        )  # fmt: skip
        return cls(roles, image, w, output, shape)


@dataclass(frozen=True, slots=True)
class PackedFilter:
    """A filter whose elements are contiguous for each k. A launch before the kernel copies a filter that is not."""

    spec: TensorSpec
    strides: tuple[int, ...]  # the strides of (k, c, r, s)
    elements: int

    @classmethod
    def of(cls, operands: Operands, steps: LaunchSequence) -> PackedFilter:
        p = operands.roles.problem
        spec, strides = packed_filter(steps, operands.roles, operands.filter)
        return cls(spec, (*strides[1:3], *strides[4:]), p.groups * p.k * p.c * p.taps)

    def copy_elements(self, cta_elements: int) -> int:
        """Elements of one cp.async copy. ``cta_elements``: elements of a CTA's filters, which start at a multiple."""
        width = power_of_two_in(cta_elements, self.elements, 16 // element_bytes(self.spec))
        return aligned_width(self.spec, width)


def interior_offsets(operands: Operands, axis: int, step: int) -> tuple[int, int]:
    """The range of offsets from a thread's first element along an axis that lie inside the image for every thread.

    ``axis``: 0 for rows, 1 for columns. ``step``: results of a thread along the axis.
    """
    p, shape = operands.roles.problem, operands.shape
    if set(effective_dilation(p)) != {1}:
        return 0, 0
    image, results = (p.output, p.input) if shape.is_dgrad else (p.input, p.output)
    taps, padding = p.filter[axis], p.pre_padding[axis]
    first = padding - taps + 1 if shape.is_dgrad else -padding
    last = first + (-(-results[axis] // step) - 1) * step  # the first offset of the last thread
    return max(0, -first), max(0, min(step + taps - 1, image[axis] - last))
