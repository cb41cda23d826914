"""Requirements of the strided data gradients whose residues share loads of dy."""

from __future__ import annotations

from graphdnn.checks import Empty, Equals, OneOf
from graphdnn.engines.cuda.codegen.requirements import SHARED_MEMORY
from graphdnn.engines.cuda.codegen.tensor_cores import Pairs
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    direction_need,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    prologue_need,
)
from graphdnn.engines.cuda.conv_geometry.gemm_problem import gemm_problem_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_shape import load_box_of, shape_of
from graphdnn.engines.cuda.sm90.halo.halo_dgrad_tiles import TILE, choose
from graphdnn.engines.cuda.sm90.sm90_requirements import channels_last_need, gemm_needs, types_of
from graphdnn.engines.cuda.sm90.tensor_maps import LIMITS
from graphdnn.engines.engine import Task, image_need, need
from graphdnn.operations import ConvBackwardData
from graphdnn.rules import Constraint

_MAX_RESIDUES = 4


def _fits(task: Task) -> bool:
    return choose(shape_of(task.op), task.device, {TILE.type: TILE.default}) is not None


def _outside(task: Task) -> str:
    """Axes along which the im2col box of dy exceeds the limits of TMA."""
    box, (low, high, furthest) = load_box_of(task.op, False), LIMITS[2]
    corners = zip(box.lower[1:], box.upper[1:], box.reach[1:], strict=True)
    return "; ".join(
        f"axis {axis}: from {lower} to {upper}, {reach} lines"
        for axis, (lower, upper, reach) in enumerate(corners)
        if not (low <= lower <= high and low <= upper <= high and reach <= furthest)
    )


def dgrad_needs(prefix: str, pairs: Pairs) -> tuple[Constraint, ...]:
    """Constraints of an engine for operand types ``pairs``; their ids begin with ``prefix``."""

    def _has_served_types(task: Task) -> bool:
        return is_convolution(task) and types_of(task) in pairs

    def _is_dgrad(task: Task) -> bool:
        return _has_served_types(task) and isinstance(task.op.anchor, ConvBackwardData)

    def _has_residues(task: Task) -> bool:
        if not (_is_dgrad(task) and is_plane(task)) or problem_of(task).groups > 1:
            return False
        return 1 < len(gemm_problem_of(task.op).residues) <= _MAX_RESIDUES

    return (
        *gemm_needs(prefix, pairs, _has_served_types),
        direction_need(
            prefix,
            ConvBackwardData.tag,
            "only data gradients have residues",
            lambda task: _has_served_types(task) and not _is_dgrad(task),
        ),
        *_image_needs(prefix, _is_dgrad),
        prologue_need(prefix, is_convolution),
        SHARED_MEMORY,
        channels_last_need(prefix, "dx", _is_dgrad),
        need(
            f"{prefix}.filter",
            "w.dims",
            lambda task: problem_of(task).w_extents,
            Equals("a filter that leaves shared memory for two loads of dy"),
            reason="all taps of a CTA's channels stay in shared memory",
            fix="nothing to do: another engine serves larger filters, and sums of more channels",
            when=lambda task: _has_residues(task) and not _fits(task),
        ),
        need(
            f"{prefix}.walk",
            "conv.pre_paddings",
            _outside,
            Empty("padding and dilated filter within the limits of TMA im2col boxes"),
            reason="TMA has 8 bits for the corners and offsets of an im2col box with two spatial axes",
            fix="nothing to do: another engine serves it",
            when=_has_residues,
        ),
    )


def _image_needs(prefix: str, is_dgrad: Condition) -> tuple[Constraint, ...]:
    """Constraints on axes, groups and strides."""
    return (
        problem_need(
            prefix,
            "spatial",
            Equals(2),
            reason="a load of dy has rows and columns of pixels",
            fix="nothing to do: another engine serves other images",
            when=is_dgrad,
        ),
        problem_need(
            prefix,
            "groups",
            Equals(1),
            reason="a load of dy is multiplied by the filters of one group",
            fix="nothing to do: another engine serves groups",
            when=is_dgrad,
            attribute="w.dims",
        ),
        image_need(
            f"{prefix}.stride",
            "conv.filter_strides",
            lambda task: len(gemm_problem_of(task.op).residues),
            OneOf(*range(2, _MAX_RESIDUES + 1)),
            reason="the residues of the positions modulo the stride share loads of dy; a thread accumulates all",
            fix="nothing to do: another engine serves unit stride, and longer ones",
            when=lambda task: is_dgrad(task) and is_plane(task),
        ),
    )
