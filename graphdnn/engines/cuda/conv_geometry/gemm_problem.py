"""A convolution as implicit GEMMs: their sizes, and the image coordinates that their indices stand for.

A dgrad of stride 1, an fprop and a wgrad are one GEMM. In a strided dgrad, all positions of dx with the same residue
modulo the stride are reached by the same taps. So each residue is a GEMM of its own, with its taps and unit stride.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any

from graphdnn.checks import AtMost
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL, Roles, padded
from graphdnn.engines.engine import Task, image_need
from graphdnn.engines.host.convolution_residues import residue_count, residues_of
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvBackwardData, ConvolutionOperation
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

MOST_RESIDUES = 1024  # for example a stride of 32 along two axes


@dataclass(frozen=True, slots=True)
class Residue:
    """The pixels and taps of one GEMM, which are all of them or belong to one residue. Tuples have SPATIAL entries.

    A tap of a pixel reads the im2col image at ``pixel * traversal_stride + start + tap * dilation``.
    """

    pixels: tuple[int, ...]
    taps: tuple[int, ...]
    start: tuple[int, ...]
    first_pixel: tuple[int, ...]  # position in the image of the pixels
    first_tap: tuple[int, ...]  # position in the filter


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """The implicit GEMMs of a convolution: their sizes, and the geometry that they share.

    ``residues``: the residue with the largest K first; at most ``MOST_RESIDUES + 1`` of them, as every engine declines
    more.
    """

    roles: Roles
    residues: tuple[Residue, ...]
    channels: int  # channels that are counted together with the taps
    outer_channels: int
    swapped: bool  # whether channels are the rows
    traversal_stride: tuple[int, ...]  # elements of the im2col image between pixels
    dilation: tuple[int, ...]
    image: tuple[int, ...]  # extents of the im2col image
    out_stride: tuple[int, ...]  # from a pixel to the next, in the image of the pixels
    tap_stride: tuple[int, ...]  # from a tap to the next, in the filter

    @property
    def is_wgrad(self) -> bool:
        return self.roles.direction == "wgrad"

    def pixel_count(self, residue: Residue) -> int:
        return self.roles.problem.n * prod(residue.pixels)

    def filters(self, residue: Residue) -> int:
        return self.channels * prod(residue.taps)

    def rows(self, residue: Residue) -> int:
        return self.outer_channels if self.swapped else self.pixel_count(residue)

    def columns(self, residue: Residue) -> int:
        if self.is_wgrad:
            return self.filters(residue)
        return self.pixel_count(residue) if self.swapped else self.outer_channels

    def depth(self, residue: Residue) -> int:
        return self.pixel_count(residue) if self.is_wgrad else self.filters(residue)

    @property
    def results(self) -> int:
        return self.roles.problem.groups * sum(self.rows(residue) * self.columns(residue) for residue in self.residues)

    @property
    def margins(self) -> list[tuple[int, int]]:
        """The margins before and after the image that taps read, for each spatial axis."""
        found = []
        for d in range(SPATIAL - self.roles.problem.spatial, SPATIAL):
            low = high = 0
            for residue in self.residues:
                if not all(residue.taps):
                    continue
                reach = (residue.taps[d] - 1) * self.dilation[d]
                low = max(low, -(residue.start[d] + min(0, reach)))
                last = residue.start[d] + (residue.pixels[d] - 1) * self.traversal_stride[d] + max(0, reach)
                high = max(high, last - (self.image[d] - 1))
            found.append((low, high))
        return found

    def moved(self, before: tuple[int, ...], image: tuple[int, ...]) -> GemmProblem:
        """The same GEMM problem in a padded image that begins ``before`` elements before the image."""
        residues = (replace(r, start=tuple(s + b for s, b in zip(r.start, before, strict=True))) for r in self.residues)
        return replace(self, residues=tuple(residues), image=image)


@memoize
def im2col_and_dense(roles: Roles) -> tuple[TensorSpec, TensorSpec]:
    """The im2col operand, whose elements come from an image, and the dense operand."""
    x, w, y = roles.op.roles
    return {"fprop": (x, w), "dgrad": (y, w), "wgrad": (x, y)}[roles.direction]


@memoize
def gemm_problem_of(op: FusedOp) -> GemmProblem:
    assert isinstance(op.anchor, ConvolutionOperation)
    return GemmProblem(Roles.of(op.anchor), *_of_images(op))


def residues_need(prefix: str) -> Constraint:
    """The limit of engines with a launch for each set of residues; engines with one launch have a smaller limit."""
    return image_need(
        f"{prefix}.residues",
        "conv.filter_strides",
        _count,
        AtMost(MOST_RESIDUES),
        reason="a strided dgrad is a product for each position modulo the stride, and each is described to the kernel",
        fix="use cuda_explicit_gemm, in floating types, or shorter strides; the host serves every stride",
        when=lambda task: isinstance(task.op.anchor, ConvBackwardData),
    )


def _count(task: Task) -> int:
    assert isinstance(task.op.anchor, ConvBackwardData)
    return residue_count(task.op.anchor.problem)


@memoize_for_images
def _of_images(op: FusedOp) -> tuple[Any, ...]:
    """The fields of a GEMM problem that do not depend on the number of images, except its roles."""
    assert isinstance(op.anchor, ConvolutionOperation)
    roles = Roles.of(op.anchor)
    p = roles.problem
    ones, zeros = padded((), 1), padded((), 0)
    if roles.direction == "dgrad":
        channels_first = roles.space(roles.output).strides(op.outputs[0])[2] != 1
        residues, spread, pitch = _residues(roles)
        image, step = padded(p.output, 1), padded(p.stride, 1)
        return residues, p.k, p.c, channels_first, ones, spread, image, step, pitch
    # A flipped filter (CONVOLUTION) reads tap F-1-f in place of f: the sign of the step and the start change.
    reach = [(f - 1) * d if p.flip else 0 for f, d in zip(p.filter, p.dilation, strict=True)]
    step = padded(tuple([-d if p.flip else d for d in p.dilation]), 0)
    start = padded(tuple([r - pre for r, pre in zip(reach, p.pre_padding, strict=True)]), 0)
    whole = Residue(padded(p.output, 1), padded(p.filter, 1), start, zeros, zeros)
    is_wgrad = roles.direction == "wgrad"
    channels_first = is_wgrad or roles.space(roles.output).strides(op.outputs[0])[2] != 1
    return (whole,), p.c, p.k, channels_first, padded(p.stride, 1), step, padded(p.input, 1), ones, ones


def _residues(roles: Roles) -> tuple[tuple[Residue, ...], tuple[int, ...], tuple[int, ...]]:
    """The residues of a dgrad, the dilation of taps in dy, and the stride of taps in the filter."""
    p = roles.problem
    found, spread, pitch = [], padded((), 0), padded((), 1)
    for residue in islice(residues_of(p), MOST_RESIDUES + 1):
        first = padded(tuple(s.start for s in residue.positions), 0)
        forward = residue.problem
        if not residue.is_reached:
            nothing = padded((0,) * p.spatial, 1)
            found.append(Residue(padded(forward.output, 1), nothing, padded((), 0), first, padded((), 0)))
            continue
        reach = tuple((f - 1) * d if forward.flip else 0 for f, d in zip(forward.filter, forward.dilation, strict=True))
        start = tuple(r - pre for r, pre in zip(reach, forward.pre_padding, strict=True))
        spread = padded(tuple(-d if forward.flip else d for d in forward.dilation), 0)
        pitch = padded(tuple(s.step for s in residue.taps), 1)
        taps = padded(tuple(s.start for s in residue.taps), 0)
        found.append(Residue(padded(forward.output, 1), padded(forward.filter, 1), padded(start, 0), first, taps))
    return tuple(sorted(found, key=lambda residue: -prod(residue.taps))), spread, pitch
