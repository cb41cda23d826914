"""Requirements that the engines whose taps share a halo tile have in common."""

from __future__ import annotations

from math import prod

from graphdnn.checks import AtLeast, Equals, OneOf
from graphdnn.engines.cuda.conv_geometry.convolution_requirements import (
    Condition,
    is_convolution,
    is_plane,
    problem_need,
    problem_of,
    roles_of,
)
from graphdnn.engines.engine import Task, image_need, window_need
from graphdnn.rules import Constraint


def is_one_gemm(task: Task, *, volumes: bool = False) -> bool:
    return _has_halo_tiles(task, volumes) and set(_strides(task)) == {1} and problem_of(task).groups == 1


def _has_halo_tiles(task: Task, volumes: bool) -> bool:
    return is_plane(task) or (volumes and is_convolution(task) and problem_of(task).spatial == 3)


def _strides(task: Task) -> tuple[int, ...]:
    """Strides of height and width; of a dgrad also of the depth, because a strided tap reaches some slices only."""
    p = problem_of(task)
    return p.stride if roles_of(task).direction == "dgrad" else p.stride[-2:]


def halo_tile_needs(
    prefix: str,
    when: Condition,
    filters: str,
    *,
    stride: str,
    groups: str,
    shares_loads: Condition = lambda task: True,
    volumes: bool = False,
) -> tuple[Constraint, ...]:
    """Requirements of a halo tile. ``filters``: the attribute with the extents of the filter.

    ``stride``, ``groups``: reasons. ``shares_loads``: whether the engine is faster only by loads that taps share.
    ``volumes``: the engine serves three spatial axes.
    """
    axes = problem_need(
        prefix,
        "spatial",
        OneOf(2, 3) if volumes else Equals(2),
        reason="a halo tile has rows and columns of pixels",
        fix="nothing to do: another engine serves other images",
        when=when,
    )
    return (
        axes,
        window_need(
            f"{prefix}.stride",
            "conv.filter_strides",
            _strides,
            OneOf((1, 1), (1, 1, 1)) if volumes else Equals((1, 1)),
            reason=stride,
            fix="nothing to do: another engine serves strides",
            when=lambda task: when(task) and _has_halo_tiles(task, volumes),
        ),
        problem_need(
            prefix,
            "groups",
            Equals(1),
            reason=groups,
            fix="nothing to do: another engine serves groups",
            when=when,
            attribute=filters,
        ),
        image_need(
            f"{prefix}.taps",
            filters,
            lambda task: prod(problem_of(task).filter[-2:]),
            AtLeast(2),
            reason="a single tap shares its loads with no other",
            fix="nothing to do: another engine serves filters of one tap",
            when=lambda task: when(task) and shares_loads(task),
        ),
    )
