"""The operands of a direct convolution, fprop or dgrad: an image, a filter, an output."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.direct.direct_access import (
    apart,
    element_bytes,
    packed_filter,
    piece_bytes,
    power_of_two_in,
    undilated,
)
from graphdnn.engines.cuda.direct.direct_shape import Shape
from graphdnn.engines.operation_cost import bytes_moved
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Sides:
    """The operands in their roles: the image that the filter slides over (x, or dy in dgrad), the filter, and the
    output.
    """

    roles: Roles
    image: TensorSpec
    filter: TensorSpec
    output: TensorSpec
    shape: Shape

    @classmethod
    def of(cls, op: FusedOp) -> Sides:
        assert isinstance(op.anchor, ConvolutionOperation)
        roles = Roles.of(op.anchor)
        x, w, y = op.anchor.roles
        dgrad = roles.direction == "dgrad"
        image, output = (y, x) if dgrad else (x, y)
        written = sum(t.bytes for t in op.outputs) / output.elements
        others = bytes_moved(op) - image.bytes - sum(t.bytes for t in op.outputs)
        shape = Shape(
            undilated(roles.problem), dgrad, False, element_bytes(image), max(1, round(written)), element_bytes(w),
            others, piece_bytes(roles, image),
        )  # fmt: skip
        return cls(roles, image, w, output, shape)


@dataclass(frozen=True, slots=True)
class PackedFilter:
    """A filter whose elements are contiguous for each k; another filter is copied before the kernel."""

    spec: TensorSpec
    strides: tuple[int, ...]  # the strides of (k, c, r, s)
    elements: int

    @classmethod
    def of(cls, sides: Sides, steps: LaunchSequence) -> PackedFilter:
        p = sides.roles.problem
        spec, strides = packed_filter(steps, sides.roles, sides.filter)
        return cls(spec, (*strides[1:3], *strides[4:]), p.groups * p.k * p.c * p.taps)

    def chunk(self, slab: int) -> int:
        """Elements of one cp.async copy; a CTA's filters, ``slab`` elements, start at a multiple of them."""
        size = element_bytes(self.spec)
        chunk = power_of_two_in(slab, self.elements, 16 // size)
        while chunk > 1 and max(1, self.spec.byte_alignment) % (chunk * size):
            chunk //= 2
        return chunk


def safe_places(sides: Sides, axis: int, step: int) -> tuple[int, int]:
    """The range of offsets from a thread's first element along an axis that lie inside the image for every thread.

    ``step``: results of a thread along the axis.
    """
    p, shape = sides.roles.problem, sides.shape
    if set(apart(p)) != {1}:
        return 0, 0
    image, results = (p.output, p.input) if shape.is_dgrad else (p.input, p.output)
    taps, padding = p.filter[axis], p.pre_padding[axis]
    first = padding - taps + 1 if shape.is_dgrad else -padding
    last = first + (-(-results[axis] // step) - 1) * step  # the first offset of the last thread
    return max(0, -first), max(0, min(step + taps - 1, image[axis] - last))
